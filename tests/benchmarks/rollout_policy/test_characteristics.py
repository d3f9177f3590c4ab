"""What docs/rollouts.md says of the policy's errors, held in a shorter simulation. Seeded."""

import pytest

from benchmarks.rollout_policy.characteristics import PlanUnderTest, plans, row
from benchmarks.rollout_policy.machine import LEVELS, LoadLevel
from benchmarks.rollout_policy.simulation import SCENARIOS, SimulatedEnd, simulate
from control.rollouts.state import PauseReason

pytestmark = pytest.mark.slow

EQUAL, _, HALF_AS_SLOW_AGAIN, TWICE_AS_SLOW, _ = SCENARIOS
QUIET, _, OVERLOADED = LEVELS


@pytest.fixture(scope="module")
def example() -> PlanUnderTest:
    """The shortest plan that compares latencies, a hundred runs of each."""
    return plans(100)[0]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_twice_as_slow_is_never_promoted(example: PlanUnderTest, level: LoadLevel) -> None:
    found = row(example, level, TWICE_AS_SLOW)
    assert found.ends[SimulatedEnd.PROMOTED] == 0
    assert found.share(SimulatedEnd.ROLLED_BACK) >= 0.95


@pytest.mark.parametrize(("level", "least"), [(QUIET, 0.95), (OVERLOADED, 0.80)])
def test_an_equal_version_is_promoted(
    example: PlanUnderTest, level: LoadLevel, least: float
) -> None:
    found = row(example, level, EQUAL)
    assert found.share(SimulatedEnd.PROMOTED) >= least
    assert found.ends[SimulatedEnd.ROLLED_BACK] <= 1


def test_half_as_slow_again_is_hardly_ever_promoted_on_a_quiet_machine(
    example: PlanUnderTest,
) -> None:
    assert row(example, QUIET, HALF_AS_SLOW_AGAIN).share(SimulatedEnd.PROMOTED) <= 0.01


def test_a_run_is_the_same_for_the_same_seed(example: PlanUnderTest) -> None:
    first, again = (simulate(example.traffic, OVERLOADED, EQUAL, 7) for _ in range(2))
    assert first == again


def test_without_a_decision_a_run_ends_paused_as_inconclusive(example: PlanUnderTest) -> None:
    """Where turns on a core take a second, nothing can be told."""
    wild = LoadLevel("wild", 1.0, 1.0, 8.0, 10.0, 20.0, 1.5, 1.5)
    ends = [simulate(example.traffic, wild, EQUAL, seed) for seed in range(1, 9)]
    assert PauseReason.INCONCLUSIVE in [one.pause for one in ends]
