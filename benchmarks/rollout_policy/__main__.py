"""Write the table of docs/rollouts.md anew: `python -m benchmarks.rollout_policy [--runs N]`."""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from benchmarks.rollout_policy.characteristics import (
    ROOT,
    CharacteristicsRow,
    plans,
    row,
    table,
)
from benchmarks.rollout_policy.machine import LEVELS
from benchmarks.rollout_policy.simulation import SCENARIOS

DOCUMENT = ROOT / "docs" / "rollouts.md"
START = "<!-- operating characteristics: written by python -m benchmarks.rollout_policy -->\n"
END = "<!-- end of operating characteristics -->\n"


def main() -> None:
    """Simulate everything, and replace what stands between the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="runs of each row")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    tables = []
    with ProcessPoolExecutor(given.processes) as pool:
        for plan in plans(given.runs):
            futures = [pool.submit(row, plan, level, one) for level in LEVELS for one in SCENARIOS]
            found: list[CharacteristicsRow] = []
            for future in futures:
                found.append(future.result())
                print(_line(found[-1]), file=sys.stderr, flush=True)
            tables.append(table(plan, found))
    text = DOCUMENT.read_text()
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise SystemExit(f"{DOCUMENT} has lost the lines {START!r} and {END!r}")
    DOCUMENT.write_text(before + start + "\n" + "\n".join(tables) + "\n" + end + after)


def _line(one: CharacteristicsRow) -> str:
    ends = ", ".join(f"{end} {count}" for end, count in sorted(one.ends.items()))
    return f"{one.level.name}, {one.scenario.name}: {ends}; half within {one.took_s:.0f} s"


if __name__ == "__main__":
    main()
