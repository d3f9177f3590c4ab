"""What the default plan promises, held against hundreds of drawn rollouts. Seeded.

Identical arms must get through by themselves, and worse ones must not; both are run where the
guardrails have it hardest: with just the minimum sample for what is hard to see, and with many
windows for what may be seen by mistake.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from control.rollouts.plan import RolloutPlan, RolloutStep
from control.rollouts.plan_keys import parse_plan
from control.rollouts.state import Phase, Transition
from control.rollouts.windows import P95, latency_gaps
from support.rollout_simulation import Behaviour, Story, Traffic, stories

PLAN = RolloutPlan()
WINDOW_S = PLAN.guardrails.window_s
ALIKE = Behaviour(error_rate=0.01, spread=0.5)

BUSY = 600.0
"""Requests a second of both arms: 1 % has the minimum sample within the hold."""

QUIET, QUIET_TICK_S = 5.0, 800.0
"""The minimum sample of a step is hours away, and there is never much more than it."""

SMALL, SMALL_TICK_S = 12.0, 35.0
"""Half of the traffic is 210 answers in a window, hardly more than one needs."""


def share(of: list[Story], holds: Callable[[Story], bool]) -> float:
    return sum(map(holds, of)) / len(of)


def unattended(story: Story) -> bool:
    """Healthy at the end, without a person; a pause that ended by itself is none of his."""
    return story.state.phase is Phase.HEALTHY


def fired_on_latency(story: Story) -> bool:
    return any(
        words.startswith(("rolled back: p9", "paused (signal): p9")) for _, _, words in story.moves
    )


def windows_after_the_sample(story: Story, window_s: float = WINDOW_S) -> float:
    """How long it took from the first step's minimum sample until the weight was zero again."""
    aborted = story.first(Transition.ABORT)
    assert aborted is not None, story.state.reason
    return (aborted - story.sampled_at) / window_s if story.sampled_at is not None else 0.0


@pytest.mark.slow
def test_of_identical_arms_nearly_all_finish_unattended() -> None:
    found = stories(250, PLAN, Traffic(ALIKE, ALIKE, BUSY, WINDOW_S))
    print(f"A/A finished unattended: {share(found, unattended):.4f}")
    print(f"A/A latency fired: {share(found, fired_on_latency):.4f}")
    assert share(found, unattended) >= 0.95
    assert share(found, fired_on_latency) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_identical_arms_finish_with_windows_as_small_as_they_get(spread: float) -> None:
    """A latency with a spread of 1 has its p95 at five times its median."""
    alike = replace(ALIKE, spread=spread)
    plan = RolloutPlan(mirror=None, steps=(RolloutStep(2_500), RolloutStep(5_000)))
    found = stories(200, plan, Traffic(alike, alike, SMALL, SMALL_TICK_S))
    print(f"A/A, small windows, spread {spread}: {share(found, unattended):.4f}")
    assert share(found, unattended) >= 0.95


@pytest.mark.slow
def test_twice_the_errors_are_hardly_ever_promoted() -> None:
    worse = replace(ALIKE, error_rate=0.02)
    found = stories(250, PLAN, Traffic(ALIKE, worse, QUIET, QUIET_TICK_S), 40 * 86_400.0)
    print(f"errors 1 % to 2 % never promoted: {1 - share(found, lambda one: one.promoted):.4f}")
    assert share(found, lambda story: not story.promoted) >= 0.90


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, PLAN.without_mirror()], ids=["mirror", "no mirror"])
@pytest.mark.parametrize(
    "worse",
    [replace(ALIKE, slower=2.0), Behaviour(slower=2.0, spread=1.0), replace(ALIKE, error_rate=0.1)],
    ids=["twice as slow", "twice as slow, heavy tails", "failing 10 %"],
)
def test_what_is_plainly_worse_is_rolled_back_within_four_windows_of_the_sample(
    worse: Behaviour, plan: RolloutPlan
) -> None:
    stable = replace(ALIKE, spread=worse.spread)
    found = stories(50, plan, Traffic(stable, worse, BUSY, WINDOW_S / 3))
    assert share(found, lambda story: story.state.phase is Phase.DEGRADED) == 1.0
    slowest = max(map(windows_after_the_sample, found))
    print(f"rolled back at most {slowest:.1f} windows after the minimum sample")
    assert slowest <= 4.0


def test_a_simulated_rollout_is_the_same_for_the_same_seed() -> None:
    traffic = Traffic(ALIKE, ALIKE, BUSY, WINDOW_S)
    first, again = (stories(2, PLAN, traffic)[1] for _ in range(2))
    assert first.moves == again.moves


SHORT = parse_plan({"mirror": 10, "steps": [10, 50], "hold": 3, "min_sample": 200, "window": 1})
"""A plan as somebody writes it who wants to see the whole story in half a minute."""

SHORT_RATE = 800.0
SHORT_WINDOW_S = P95.sample / (SHORT_RATE * 0.10)
"""What a window of its first step lasts: longer than the plan says, until it has its answers."""


@pytest.mark.parametrize("plan", [SHORT, SHORT.without_mirror()], ids=["mirror", "no mirror"])
@pytest.mark.parametrize(
    "worse",
    [replace(ALIKE, slower=2.0), replace(ALIKE, error_rate=0.1)],
    ids=["twice as slow", "failing 10 %"],
)
def test_a_short_plan_notices_it_as_soon(worse: Behaviour, plan: RolloutPlan) -> None:
    found = stories(6, plan, Traffic(ALIKE, worse, SHORT_RATE, 0.5))
    assert share(found, lambda story: story.state.phase is Phase.DEGRADED) == 1.0
    windows = [windows_after_the_sample(story, SHORT_WINDOW_S) for story in found]
    assert max(windows) <= 4.0


@pytest.mark.parametrize(
    "raw",
    [{}, {"min_sample": 200, "hold": 1}, {"min_sample": 200, "hold": 60, "mirror": 0}],
    ids=["default", "hold shorter than a window", "just one window"],
)
@pytest.mark.parametrize("errors", [0.0, 0.1], ids=["no errors", "a tenth fails in both arms"])
def test_twice_as_slow_never_takes_over_where_the_samples_can_tell(
    raw: dict[str, object], errors: float
) -> None:
    """Failed requests have no latency, so that a sample may bring fewer than it has requests."""
    plan = parse_plan(raw)
    stable = replace(ALIKE, error_rate=errors)
    found = stories(20, plan, Traffic(stable, replace(stable, slower=2.0), 20.0, 10.0))
    assert not any(story.promoted for story in found)
    assert latency_gaps(plan) == ()


def test_a_plan_that_cannot_feed_the_latency_guardrail_says_where() -> None:
    plan = parse_plan({"steps": [{"weight": 10, "min_sample": 50}, 50], "mirror": 0})
    (gap,) = latency_gaps(plan)
    assert "the step of 10 % ends with 50 answers of each arm" in gap
    assert "p95 needs 200; set min_sample to 200 or more" in gap
    assert "without being noticed" in latency_gaps(parse_plan({"min_sample": 50}))[-1]
    assert latency_gaps(parse_plan({"min_sample": 50, "mode": "immediate"})) == ()


def test_a_short_plan_lets_what_is_alike_through() -> None:
    found = stories(6, SHORT, Traffic(ALIKE, ALIKE, SHORT_RATE, 0.5))
    assert share(found, unattended) >= 0.95
