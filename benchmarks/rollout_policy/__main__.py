"""Write the table of docs/rollouts.md anew: `python -m benchmarks.rollout_policy [--runs N]`."""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from benchmarks.rollout_policy.characteristics import (
    ROOT,
    CharacteristicsRow,
    PlanUnderTest,
    plans,
    row,
    table,
)
from benchmarks.rollout_policy.machine import LEVELS
from benchmarks.rollout_policy.simulation import SCENARIOS

DOCUMENT = ROOT / "docs" / "rollouts.md"
START = "<!-- {} plan: written by python -m benchmarks.rollout_policy -->\n"
END = "<!-- end of the {} plan -->\n"


def main() -> None:
    """Simulate everything, and replace what stands between the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="runs of each row")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--plan", choices=("example", "default"), help="one of the tables alone")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes) as pool:
        for plan in plans(given.runs):
            if given.plan in (None, plan.name):
                write(plan, _simulated(pool, plan))


def _simulated(pool: ProcessPoolExecutor, plan: PlanUnderTest) -> list[CharacteristicsRow]:
    futures = [pool.submit(row, plan, level, one) for level in LEVELS for one in SCENARIOS]
    found: list[CharacteristicsRow] = []
    for future in futures:
        found.append(future.result())
        print(_line(found[-1]), file=sys.stderr, flush=True)
    return found


def write(plan: PlanUnderTest, found: list[CharacteristicsRow]) -> None:
    """Put the plan's table between its marks. Raises SystemExit where these are lost."""
    text = DOCUMENT.read_text()
    before, start, rest = text.partition(START.format(plan.name))
    _, end, after = rest.partition(END.format(plan.name))
    if not (start and end):
        raise SystemExit(f"{DOCUMENT} has lost its marks of the {plan.name} plan")
    DOCUMENT.write_text(f"{before}{start}\n{table(plan, found)}\n{end}{after}")


def _line(one: CharacteristicsRow) -> str:
    ends = ", ".join(f"{end} {count}" for end, count in sorted(one.ends.items()))
    return f"{one.level.name}, {one.scenario.name}: {ends}; half within {one.took_s:.0f} s"


if __name__ == "__main__":
    main()
