"""`python -m benchmarks.fuzz`: run the campaign, or go on with it, and print its table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.campaign import CONTROL_API, CORPORA, TARGETS, Campaign, Row


def main(words: Sequence[str] | None = None) -> int:
    """1 when a run ended badly; the input that did it lies in the state folder."""
    arguments = _parser().parse_args(words)
    rows = []
    for name in arguments.targets:
        campaign = Campaign(arguments.state, name)
        for ran in campaign.run(arguments.inputs, arguments.each):
            text = f"{name}: {ran.inputs} inputs, {ran.rate}/s, {ran.peak_mb} MB, {ran.ended[:60]}"
            print(text, file=sys.stderr, flush=True)
        if arguments.keep and name != CONTROL_API:
            campaign.minimised(CORPORA / name)
        rows.append(campaign.row())
    text = table(rows)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    return 1 if any(row.wrong for row in rows) else 0


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line for each target, then what was wrong."""
    lines = [
        "| target | inputs | inputs/s | corpus | lines reached | growth | wrong |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        share = f"{row.reached} of {row.lines} ({100 * row.reached / max(row.lines, 1):.0f} %)"
        lines.append(
            f"| {row.target} | {row.inputs:,} | {row.rate:,} | {row.corpus} | {share} "
            f"| {row.grown_mb:.1f} MiB | {len(row.wrong)} |"
        )
    lines.append(f"\n{sum(row.inputs for row in rows):,} inputs in all.")
    lines += [f"\n{row.target}: {one}" for row in rows for one in row.wrong]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    parser.add_argument("--inputs", type=int, default=50_000, help="for each target, in all")
    parser.add_argument("--each", type=int, default=25_000, help="inputs of one process")
    parser.add_argument("--state", type=Path, default=Path(".cache/fuzz"))
    parser.add_argument("--keep", action="store_true", help="keep a small corpus in tests/corpora")
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
