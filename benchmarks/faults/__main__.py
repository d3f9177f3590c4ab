"""`python -m benchmarks.faults`: the table, or some of its cells; goes on where it stopped."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

from benchmarks.faults.cells import TABLE, Cell, cells, row_of
from benchmarks.faults.outcome import Outcome, verdict
from benchmarks.faults.run import run, settle
from benchmarks.faults.server import NotStarted, server
from benchmarks.faults.surroundings import NotHere

COUNTED = ("right", "refused", "broken", "wrong", "hung", "lost")


def main(words: Sequence[str] | None = None) -> int:
    """1 when a cell is against a promise."""
    arguments = _parser().parse_args(words)
    wanted = [one for one in cells() if any(fnmatchcase(one.name, it) for it in arguments.only)]
    state = arguments.state
    state.parent.mkdir(parents=True, exist_ok=True)
    done = {} if arguments.fresh else _read(state)
    missing = [one for one in wanted if one.name not in done]
    with state.open("a" if done else "w") as file:
        for outcome in _outcomes(missing):
            done[outcome.cell] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            print(_line(outcome), file=sys.stderr, flush=True)
    text = table([done[one.name] for one in wanted if one.name in done])
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    return 1 if any(verdict(one, Cell("", "", "").recover_s) for one in done.values()) else 0


def _outcomes(wanted: Iterable[Cell]) -> Iterable[Outcome]:
    """Cells with the same surroundings share a server, as long as it can be brought back."""
    for needs, group in groupby(wanted, lambda one: row_of(one).needs):
        left = list(group)
        while left:
            try:
                with server(needs) as one:
                    while left:
                        settle(one)
                        yield run(one, left.pop(0))
            except NotHere as reason:
                yield from (Outcome(cell.name, skipped=str(reason)) for cell in left)
                left = []
            except NotStarted as reason:
                print(f"the server is made anew: {reason}", file=sys.stderr)


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a line for each cell, the totals, then what was not as promised."""
    lines = [
        "| cell | right | refused | broken | wrong | hung | lost | recovered |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    counted = [one for one in outcomes if not one.skipped]
    for one in counted:
        recovered = "never" if one.recovered_s is None else f"{one.recovered_s:.1f} s"
        lines.append(
            f"| {one.cell} | {one.right} | {one.refused} | {one.broken} | {one.wrong} "
            f"| {one.hung} | {one.lost} | {recovered} |"
        )
    totals = {
        name: sum(getattr(one, name) for one in counted)
        for name in ("right", "refused", "broken", "wrong", "hung", "lost")
    }
    said = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    lines.append(f"\n{len(counted)} cells: {said}.")
    lines += [f"\nnot injected here: {one.cell}: {one.skipped}" for one in outcomes if one.skipped]
    promise = Cell("", "", "").recover_s
    lines += [f"\n{one.cell}: {wrong}" for one in counted if (wrong := verdict(one, promise))]
    lines.append("\n| component | fault | what is done |\n|---|---|---|")
    lines += [f"| {row.component} | {row.kind} | {row.meaning} |" for row in TABLE]
    return "\n".join(lines) + "\n"


def _line(outcome: Outcome) -> str:
    wrong = verdict(outcome, Cell("", "", "").recover_s)
    return f"{outcome.cell}: {outcome.skipped or wrong or 'as promised'} ({outcome.observed})"


def _read(state: Path) -> dict[str, Outcome]:
    if not state.exists():
        return {}
    rows = [Outcome(**json.loads(line)) for line in state.read_text().splitlines()]
    return {row.cell: row for row in rows}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=["*"], help="cells by pattern, e.g. 'worker/*/load'"
    )
    parser.add_argument("--state", type=Path, default=Path(".cache/faults.jsonl"))
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
