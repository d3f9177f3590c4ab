"""A newcomer gets into the step, whatever long prompts are in progress; nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from schedulers.llm.generation import GenerateRequest
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler
from schedulers.llm.policy.shares import SHORT_LEAST, SHORT_TOKENS, PrefillDemand, share_out

LONG, CHAT = 4000, 30


def house(prompts: int = 8, tokens: int = 40_000, **limits: float) -> SequenceScheduler:
    """Eight prompts of 4,000 tokens in progress, some steps on."""
    settings = {"step_tokens": 256, "context": 8192} | limits
    subject = SequenceScheduler(EngineLimits(**settings), BlockPool(tokens // 16, 16))  # type: ignore[arg-type]
    for number in range(prompts):
        subject.submit(asked(f"long {number}", LONG), 0.0)
    for _ in range(3):
        step(subject)
    return subject


def asked(name: str, length: int, **facts: object) -> GenerateRequest:
    first = 10_000 * (1 + sum(name.encode()))
    return GenerateRequest(name, tuple(range(first, first + length)), 4, **facts)  # type: ignore[arg-type]


def step(subject: SequenceScheduler, seconds: float = 0.0) -> set[str]:
    """Who got a token in the next step."""
    planned = subject.schedule(0.0)
    subject.took(seconds)
    sampled = {chunk.id: 7 for chunk in planned.chunks if chunk.samples}
    advanced = subject.commit(planned, sampled)
    subject.check()
    return set(advanced)


def steps_to(subject: SequenceScheduler, name: str, seconds: float = 0.0) -> int:
    """Steps until its first token."""
    for count in range(1, 2000):
        if name in step(subject, seconds):
            return count
    raise AssertionError(f"{name} never got a token")


def test_a_chat_beside_eight_long_prompts_is_answered_within_three_steps() -> None:
    subject = house()
    subject.submit(asked("chat", CHAT), 0.0)
    assert steps_to(subject, "chat") <= 3


def test_so_it_is_where_answers_leave_prompts_the_least_there_is() -> None:
    subject = house(step_s=0.001)
    subject.submit(GenerateRequest("answer", (1, 2, 3), 500), 0.0)
    for _ in range(20):
        step(subject, 1.0)
    subject.submit(asked("chat", CHAT), 0.0)
    assert steps_to(subject, "chat", 1.0) <= 3


def test_so_it_is_behind_long_prompts_that_wait_for_blocks() -> None:
    subject = house(prompts=30, tokens=34_000)
    assert subject.counts().waiting == 22
    subject.submit(asked("chat", CHAT), 0.0)
    assert steps_to(subject, "chat") <= 3


def test_so_it_is_for_another_principal_beside_many_short_prompts() -> None:
    subject = house()
    for number in range(50):
        subject.submit(asked(f"other {number}", 60, principal="other"), 0.0)
    step(subject)
    subject.submit(asked("chat", CHAT, principal="me"), 0.0)
    assert steps_to(subject, "chat") <= 3


def test_an_urgent_long_prompt_takes_the_steps_it_needs() -> None:
    subject = house()
    subject.submit(asked("urgent", 1000, priority=-1), 0.0)
    assert steps_to(subject, "urgent") == 4


def test_a_long_prompt_ends_though_short_ones_never_stop_coming() -> None:
    subject = house(prompts=1, step_tokens=64)
    for number in range(500):
        subject.submit(asked(f"chat {number}", CHAT), 0.0)
        if "long 0" in step(subject):
            return
    raise AssertionError("the long prompt starved")


def test_who_waits_for_blocks_is_passed_by_as_many_tokens_as_it_has_and_no_more() -> None:
    subject = house(prompts=2, tokens=4500)
    assert subject.counts().waiting == 1
    ended = set[str]()
    for number in range(2000):
        subject.submit(asked(f"chat {number}", CHAT), 0.0)
        ended |= step(subject)
        if "long 1" in ended:
            break
    assert sum(name.startswith("chat") for name in ended) <= 2 * LONG / CHAT
    assert "long 1" in ended


wants = st.lists(
    st.builds(PrefillDemand, st.integers(1, 5000), st.integers(0, 2), st.sampled_from("ab")),
    min_size=1,
    max_size=20,
).map(lambda found: sorted(found, key=lambda one: one.priority))


@given(wants, st.integers(1, 256), st.integers(1, 256))
def test_shares_keep_the_budget_and_leave_none_of_it_unused(
    wants: list[PrefillDemand], budget: int, most: int
) -> None:
    shares = share_out(wants, budget, most)
    total, wanted = sum(shares), sum(one.remaining for one in wants)
    assert all(0 <= share <= want.remaining for share, want in zip(shares, wants, strict=True))
    assert min(budget, most, wanted) <= total <= most
    beyond = sum(
        share for share, one in zip(shares, wants, strict=True) if one.remaining > SHORT_TOKENS
    )
    assert beyond <= budget + 3 * budget // 2
    assert total <= budget + 3 * max(SHORT_LEAST, budget // 2)


@given(wants.filter(lambda found: len(found) <= 16))
def test_every_prompt_of_the_most_urgent_priority_gets_into_the_step(
    wants: list[PrefillDemand],
) -> None:
    shares = share_out(wants, 256, 256)
    first = wants[0].priority
    assert all(s for s, one in zip(shares, wants, strict=True) if one.priority == first)
