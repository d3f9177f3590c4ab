"""The operating characteristics of the rollout policy: how often it promotes what, in a table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rollout_policy.machine import LEVELS, LoadLevel
from benchmarks.rollout_policy.simulation import (
    SCENARIOS,
    RolloutScenario,
    SimulatedEnd,
    SimulatedTraffic,
    runs,
)
from control.rollouts.plan import RolloutPlan
from control.rollouts.plan_keys import parameters_plan
from repository.config.read import parse

ROOT = Path(__file__).parents[2]


PROMISED = (SCENARIOS[0], SCENARIOS[3])
"""An equal candidate, and one that is twice as slow."""


@dataclass(frozen=True, slots=True)
class PlanUnderTest:
    """A plan with its traffic; `words` say which, `name` is for marks in a document."""

    name: str
    words: str
    traffic: SimulatedTraffic
    number: int
    """Runs of the scenarios that bounds are promised of; a fifth of them of the others."""


def example_plan() -> RolloutPlan:
    """That of examples/ab_rollout."""
    path = ROOT / "examples" / "ab_rollout" / "config.pbtxt"
    config = parse(path.read_text(), path)
    plan = parameters_plan({key: one.string_value for key, one in config.parameters.items()})
    assert plan is not None
    return plan


def plans(number: int) -> tuple[PlanUnderTest, ...]:
    """The shortest plan that compares latencies, and the default one, whose runs take longer, with
    a tenth of the runs."""
    example = SimulatedTraffic(example_plan(), 50.0, 1)
    default = SimulatedTraffic(RolloutPlan(), 200.0, 10)
    return (
        PlanUnderTest(
            "example", "The plan of `examples/ab_rollout`, 50 requests/s", example, number
        ),
        PlanUnderTest("default", "The default plan, 200 requests/s", default, max(1, number // 10)),
    )


@dataclass(frozen=True, slots=True)
class CharacteristicsRow:
    """How `number` runs ended: `ends` by how many, `took_s` half of them at most."""

    level: LoadLevel
    scenario: RolloutScenario
    number: int
    ends: Counter[SimulatedEnd]
    took_s: float

    def share(self, end: SimulatedEnd) -> float:
        return self.ends[end] / self.number


def row(plan: PlanUnderTest, level: LoadLevel, scenario: RolloutScenario) -> CharacteristicsRow:
    """Seeds are 1 to the number of runs."""
    number = plan.number if scenario in PROMISED else max(1, plan.number // 5)
    found = list(runs(plan.traffic, level, scenario, range(1, number + 1)))
    took = sorted(one.took_s for one in found if one.end is not SimulatedEnd.PAUSED)
    middle = took[len(took) // 2] if took else float("nan")
    return CharacteristicsRow(level, scenario, number, Counter(one.end for one in found), middle)


def rows(plan: PlanUnderTest) -> Iterator[CharacteristicsRow]:
    """Of every scenario at every level."""
    return (row(plan, level, scenario) for level in LEVELS for scenario in SCENARIOS)


def table(plan: PlanUnderTest, found: Sequence[CharacteristicsRow]) -> str:
    """In Markdown."""
    head = f"{plan.words}. Seeds are 1 to the number of runs.\n\n"
    lines = [
        "| machine | candidate | runs | promoted | rolled back | paused |",
        "|---|---|" + 4 * "--:|",
    ]
    lines += [
        f"| {one.level.name} | {one.scenario.name} | {one.number:,} | "
        + " | ".join(_percent(one, end) for end in SimulatedEnd)
        + " |"
        for one in found
    ]
    return head + "\n".join(lines) + "\n"


def _percent(one: CharacteristicsRow, end: SimulatedEnd) -> str:
    count = one.ends[end]
    if not count:
        return "0"
    return "100 %" if count == one.number else f"{100 * count / one.number:.1f} %"
