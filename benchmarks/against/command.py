"""The command line: which revision, which subjects, how often and how long."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import benchmarks.against
from benchmarks.against.language import LLM
from benchmarks.against.requests import GRPC, REST, ROUTING
from benchmarks.against.revision import ROOT, checked_out
from benchmarks.against.turns import Schedule, measured
from benchmarks.against.verdict import table
from benchmarks.arguments import names

SUBJECTS = {"rest": REST, "grpc": GRPC, "routing": ROUTING, "llm": LLM}


def main(words: Sequence[str]) -> int:
    """Print the table; 0 also where this tree is slower.

    Raises CalledProcessError where there is no such revision, or it cannot be set up; PeerFailed,
    WrongAnswer, NoLoadGenerator.
    """
    given = _parser().parse_args(words)
    cache: Path = given.cache.resolve()
    tree = checked_out(given.revision, cache)
    schedule = Schedule(given.rounds, given.starts, given.duration)
    rows = measured((ROOT, tree), cache, [SUBJECTS[name] for name in given.only], schedule)
    print(table(given.revision, rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks against", description=benchmarks.against.__doc__
    )
    add = parser.add_argument
    add("revision", metavar="REV", help="the commit to compare with")
    add("--only", type=names(SUBJECTS), default=list(SUBJECTS), metavar="NAME,…",
        help=f"what is compared: {', '.join(SUBJECTS)} (default: all)")  # fmt: skip
    add("--rounds", type=int, default=9, help="of each kind at each server (9)")
    add("--starts", type=int, default=3, help="times that both servers are started (3)")
    add("--duration", type=float, default=3.0, metavar="S", help="seconds per measurement (3)")
    add("--cache", type=Path, default=ROOT / ".cache", metavar="DIR",
        help="where worktrees, models and logs are kept (.cache)")  # fmt: skip
    return parser
