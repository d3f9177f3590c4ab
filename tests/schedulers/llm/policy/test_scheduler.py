"""The step policy: one budget, admission, preemption, fairness, deadlines, bounds."""

import pytest

from schedulers.llm.errors import PromptTooLong, TooMuchWaiting
from schedulers.llm.generation import Finish, GenerateRequest
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler
from schedulers.llm.policy.step import Step

TOKEN = 7


def scheduler(blocks: int = 64, block_tokens: int = 4, **limits: int) -> SequenceScheduler:
    settings = {"step_tokens": 16, "running": 8, "watermark_blocks": 0, "context": 256} | limits
    return SequenceScheduler(EngineLimits(**settings), BlockPool(blocks, block_tokens))


def asked(name: str, length: int = 4, answer: int = 8, **facts: object) -> GenerateRequest:
    first = 100 * sum(name.encode())
    return GenerateRequest(name, tuple(range(first, first + length)), answer, **facts)  # type: ignore[arg-type]


def run(subject: SequenceScheduler, now_s: float = 0.0) -> tuple[Step, dict[str, Finish | None]]:
    step = subject.schedule(now_s)
    finishes = subject.commit(step, {chunk.id: TOKEN for chunk in step.chunks})
    subject.check()
    return step, finishes


def spans(step: Step) -> dict[str, tuple[int, int]]:
    return {chunk.id: (chunk.start, len(chunk.tokens)) for chunk in step.chunks}


def test_a_long_prompt_is_computed_in_chunks_and_samples_at_its_end() -> None:
    subject = scheduler()
    subject.submit(asked("a", 40), 0.0)
    steps = [run(subject) for _ in range(3)]
    assert [spans(step)["a"] for step, _ in steps] == [(0, 16), (16, 16), (32, 8)]
    assert [len(finishes) for _, finishes in steps] == [0, 0, 1]


def test_decoding_comes_first_and_prompts_share_what_is_left() -> None:
    subject = scheduler()
    subject.submit(asked("a", 4), 0.0)
    run(subject)
    subject.submit(asked("b", 40), 0.0)
    step, _ = run(subject)
    assert spans(step) == {"a": (4, 1), "b": (0, 15)}


def test_one_long_prompt_leaves_a_short_one_what_it_needs() -> None:
    subject = scheduler()
    subject.submit(asked("long", 100), 0.0)
    subject.submit(asked("short", 6), 0.0)
    step, _ = run(subject)
    assert spans(step) == {"long": (0, 10), "short": (0, 6)}


def test_a_prompt_is_admitted_only_when_all_of_it_fits() -> None:
    subject = scheduler(blocks=8)
    subject.submit(asked("a", 20), 0.0)
    subject.submit(asked("b", 20), 0.0)
    step, _ = run(subject)
    assert set(spans(step)) == {"a"}


def test_admission_leaves_the_watermark_to_those_running() -> None:
    subject = scheduler(blocks=4, watermark_blocks=2)
    subject.submit(asked("a", 4), 0.0)
    run(subject)
    subject.submit(asked("b", 8), 0.0)
    step, _ = run(subject)
    assert "b" not in spans(step)


def test_the_last_to_come_gives_up_its_blocks_and_starts_over_from_the_cache() -> None:
    subject = scheduler(blocks=6)
    for name in ("a", "b"):
        subject.submit(asked(name, 11, 12), 0.0)
    preempted: list[str] = []
    answers: dict[str, int] = {}
    while subject.busy:
        step, finishes = run(subject)
        preempted += step.preempted
        for id in finishes:
            answers[id] = answers.get(id, 0) + 1
    assert set(preempted) == {"b"}
    assert answers == {"a": 12, "b": 12}
    assert subject.counts().preemptions == len(preempted)


def test_the_same_beginning_is_computed_once() -> None:
    subject = scheduler()
    prompt = tuple(range(12))
    subject.submit(GenerateRequest("a", prompt, 2), 0.0)
    subject.submit(GenerateRequest("b", prompt, 2), 0.0)
    first, _ = run(subject)
    second, _ = run(subject)
    assert set(spans(first)) == {"a"}
    assert spans(second)["b"] == (8, 4)
    assert subject.counts().prefix_hit_tokens == 8


def test_another_salt_finds_nothing_in_the_cache() -> None:
    subject = scheduler()
    prompt = tuple(range(12))
    subject.submit(GenerateRequest("a", prompt, 1, salt=b"alice"), 0.0)
    run(subject)
    subject.submit(GenerateRequest("b", prompt, 1, salt=b"bob"), 0.0)
    step, _ = run(subject)
    assert spans(step)["b"] == (0, 12)


def test_a_request_that_must_see_its_whole_prompt_reads_no_cache() -> None:
    subject = scheduler()
    prompt = tuple(range(12))
    subject.submit(GenerateRequest("a", prompt, 1), 0.0)
    run(subject)
    subject.submit(GenerateRequest("b", prompt, 1, prompt_logprobs=0), 0.0)
    step, _ = run(subject)
    assert spans(step)["b"] == (0, 12)


def test_a_smaller_priority_is_admitted_first_and_displaces_a_larger_one() -> None:
    subject = scheduler(running=1)
    subject.submit(asked("later", priority=5), 0.0)
    run(subject)
    subject.submit(asked("sooner", priority=1), 0.0)
    step, _ = run(subject)
    assert step.preempted == ("later",)
    assert set(spans(step)) == {"sooner"}


def test_the_principal_served_least_goes_first() -> None:
    subject = scheduler(running=1)
    for name in ("a1", "a2", "a3"):
        subject.submit(asked(name, answer=1, principal="alice"), 0.0)
    subject.submit(asked("b1", answer=1, principal="bob"), 0.0)
    order = [chunk.id for _ in range(4) for chunk in run(subject)[0].chunks]
    assert order == ["a1", "b1", "a2", "a3"]


def test_a_passed_deadline_ends_waiting_and_running_alike() -> None:
    subject = scheduler(running=1)
    subject.submit(asked("a", deadline_s=5.0), 0.0)
    subject.submit(asked("b", deadline_s=5.0), 0.0)
    run(subject)
    step, _ = run(subject, now_s=5.0)
    assert {(one.id, one.reason) for one in step.ended} == {
        ("a", Finish.DEADLINE),
        ("b", Finish.DEADLINE),
    }
    assert not subject.busy


def test_a_stop_token_ends_the_answer_but_not_before_the_minimum() -> None:
    subject = scheduler()
    subject.submit(asked("a", stop_ids=(TOKEN,), min_tokens=3), 0.0)
    finishes = [run(subject)[1]["a"] for _ in range(4)]
    assert finishes == [None, None, None, Finish.STOP]


def test_an_answer_ends_where_the_context_does() -> None:
    subject = scheduler(context=8)
    subject.submit(asked("a", 6, 100), 0.0)
    assert [run(subject)[1]["a"] for _ in range(2)] == [None, Finish.LENGTH]


def test_a_finished_sequence_frees_its_blocks_at_once() -> None:
    subject = scheduler()
    subject.submit(asked("a"), 0.0)
    step = subject.schedule(0.0)
    assert subject.finish("a")
    assert not subject.finish("a")
    assert subject.commit(step, {"a": TOKEN}) == {}
    assert subject.counts().blocks.in_use == 0


def test_a_step_that_failed_is_planned_again() -> None:
    subject = scheduler()
    subject.submit(asked("a"), 0.0)
    assert subject.schedule(0.0).chunks == subject.schedule(0.0).chunks


def test_a_prompt_that_leaves_no_room_is_refused_with_the_limit() -> None:
    with pytest.raises(PromptTooLong, match="has 256 tokens; at most 255 leave room"):
        scheduler().submit(asked("a", 256), 0.0)


def test_too_many_requests_are_refused_with_a_time_to_come_back() -> None:
    subject = scheduler(waiting=1)
    subject.submit(asked("a"), 0.0)
    with pytest.raises(TooMuchWaiting, match="1 requests wait already") as caught:
        subject.submit(asked("b"), 0.0)
    assert 1.0 <= caught.value.retry_after_s <= 60.0


def test_too_many_prompt_tokens_are_refused() -> None:
    subject = scheduler(waiting_tokens=10)
    subject.submit(asked("a", 8), 0.0)
    with pytest.raises(TooMuchWaiting, match="8 prompt tokens wait already, and 8 more"):
        subject.submit(asked("b", 8), 0.0)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GenerateRequest("a", (), 1), "the prompt is empty"),
        (GenerateRequest("a", (1,), 0), "max_tokens is 0"),
        (GenerateRequest("there", (1,), 1), "'there' is in use"),
    ],
)
def test_a_senseless_request_is_refused(request_: GenerateRequest, message: str) -> None:
    subject = scheduler()
    subject.submit(asked("there"), 0.0)
    with pytest.raises(ValueError, match=message):
        subject.submit(request_, 0.0)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="running is 9"):
        EngineLimits(step_tokens=8, running=9)
