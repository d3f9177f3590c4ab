"""Chunks of prompts are as long as the answers beside them can wait for."""

from schedulers.llm.generation import GenerateRequest
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.prefill_budget import LEAST_TOKENS, PrefillBudget
from schedulers.llm.policy.scheduler import SequenceScheduler
from schedulers.llm.policy.step import Step
from support.llm import prompt

MOST, TARGET_S = 256, 0.5


def settled(answers_s: float, token_s: float, target_s: float = TARGET_S) -> PrefillBudget:
    """After steps in which answers alone took so long, and a prompt's token so long beside them."""
    pace = PrefillBudget(MOST, target_s)
    for _ in range(20):
        pace.note(4, 0, answers_s)
    for _ in range(20):
        tokens = pace.prompt_tokens
        pace.note(4, tokens, answers_s + tokens * token_s)
    return pace


def test_before_anything_was_computed_a_prompt_gets_all_there_is() -> None:
    assert PrefillBudget(MOST, TARGET_S).prompt_tokens == MOST


def test_a_step_takes_as_long_as_it_may() -> None:
    tokens = settled(answers_s=0.1, token_s=0.004).prompt_tokens
    assert 99 <= tokens <= 100


def test_steps_that_are_fast_enough_are_left_as_they_are() -> None:
    assert settled(answers_s=0.02, token_s=0.001).prompt_tokens == MOST


def test_prompts_get_half_of_the_time_where_answers_take_all_of_it() -> None:
    tokens = settled(answers_s=3.0, token_s=0.005).prompt_tokens
    assert 49 <= tokens <= 50


def test_a_prompt_always_advances() -> None:
    assert settled(answers_s=3.0, token_s=10.0).prompt_tokens == LEAST_TOKENS
    assert PrefillBudget(4, TARGET_S).prompt_tokens == 4


def test_a_prompt_gets_slower_the_further_it_is_and_its_steps_do_not() -> None:
    """As attention's cost grows: at 4,000 tokens each takes five times what the first one does."""
    pace, done, took = settled(0.05, 0.001), 0, []
    while done < 4000:
        tokens = min(pace.prompt_tokens, 4000 - done)
        took.append(0.05 + tokens * 0.001 * (1 + done / 1000))
        pace.note(8, tokens, took[-1])
        done += tokens
    assert max(took) < 1.5 * TARGET_S


def test_one_step_that_was_held_up_is_soon_forgotten() -> None:
    pace = settled(answers_s=0.05, token_s=0.001)
    pace.note(4, MOST, 8.0)
    assert pace.prompt_tokens < MOST / 4
    for _ in range(6):
        tokens = pace.prompt_tokens
        pace.note(4, tokens, 0.05 + tokens * 0.001)
    assert pace.prompt_tokens == MOST


def test_without_a_target_nothing_is_held_back() -> None:
    assert settled(3.0, 10.0, target_s=float("inf")).prompt_tokens == MOST


def test_only_steps_that_decode_are_paced() -> None:
    limits = EngineLimits(step_tokens=64, context=512, step_s=0.1)
    scheduler = SequenceScheduler(limits, BlockPool(64, 16))
    scheduler.submit(GenerateRequest("long", prompt(1, 300), 4), 0.0)
    assert taken(scheduler, 6.4) == {"long": 64}
    assert taken(scheduler, 6.4) == {"long": 64}
    scheduler.submit(GenerateRequest("short", prompt(2, 8), 4), 0.0)
    assert taken(scheduler, 6.4) == {"long": 56, "short": 8}
    assert taken(scheduler, 6.4) == {"short": 1, "long": LEAST_TOKENS}


def taken(scheduler: SequenceScheduler, seconds: float) -> dict[str, int]:
    """The tokens of each sequence in the next step, which takes so long."""
    step: Step = scheduler.schedule(0.0)
    scheduler.took(seconds)
    scheduler.commit(step, {chunk.id: 5 for chunk in step.chunks if chunk.samples})
    scheduler.check()
    return {chunk.id: len(chunk.tokens) for chunk in step.chunks}
