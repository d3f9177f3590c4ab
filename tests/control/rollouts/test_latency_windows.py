"""Windows of latency: the noise of a busy machine is not slowness, and slowness is not noise."""

import numpy as np
import pytest

from control.rollouts.arms import ArmTotals, OutcomeCounts, RolloutTotals
from control.rollouts.plan import Guardrails, RolloutPlan
from control.rollouts.state import Phase, RolloutState
from control.rollouts.windows import P95, closed, opened
from control.statistics.histogram import Histogram

PLAN = RolloutPlan(guardrails=Guardrails(window_s=1.0))
SPREAD = 1.0
"""Of a log-normal latency: one in twenty takes five times as long as the median."""


def answers(draw: np.random.Generator, count: int, slower: float) -> ArmTotals:
    latency = Histogram()
    latency.add_many(0.02 * slower * np.exp(SPREAD * draw.standard_normal(count)))
    return ArmTotals(OutcomeCounts(count), latency)


def slow_windows(draw: np.random.Generator, number: int, slower: float) -> int:
    """Of `number` windows that have just as many answers as one needs."""
    state = RolloutState(PLAN, phase=Phase.STEP, windows=opened(RolloutTotals(), Phase.STEP, 0.0))
    arms, found = RolloutTotals(), 0
    for second in range(1, number + 1):
        arms = arms + RolloutTotals(
            answers(draw, P95.sample, 1.0), answers(draw, P95.sample, slower)
        )
        windows = closed(state, arms, float(second))
        found += windows.p95.slow > 0
        state = RolloutState(PLAN, phase=Phase.STEP, windows=windows)
    return found


def test_long_tails_alone_make_few_windows_slow() -> None:
    draw = np.random.default_rng(1)
    assert slow_windows(draw, 400, slower=1.0) <= 400 * 0.05


@pytest.mark.parametrize(("slower", "share"), [(2.0, 0.8), (3.0, 0.99)])
def test_a_candidate_that_is_slow_is_slow_in_nearly_every_window(
    slower: float, share: float
) -> None:
    draw = np.random.default_rng(2)
    assert slow_windows(draw, 200, slower) >= 200 * share
