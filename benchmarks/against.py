"""This tree against another revision: `python -m benchmarks against REV` (or `--against REV`).

The other revision is checked out into a worktree with an environment of its own; both servers run
at once and are asked in turns, so that a noisy minute hits both. A server differs from one start to
the next by more than a small change does, so both are started several times.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.shots import Problem, Shot, binary_shot, grpc_shot, json_shot

ROOT = Path(__file__).resolve().parents[1]
SHOTS: dict[str, Callable[[Problem], Shot]] = {
    "json": json_shot,
    "binary": binary_shot,
    "grpc": grpc_shot,
}
CONCURRENCY = 8
RESAMPLES = 10_000
SETUP_S = 1800


class Interval(NamedTuple):
    """The ratio of two medians, and its 95 % bootstrap interval."""

    ratio: float
    lower: float
    upper: float


class Row(NamedTuple):
    """Medians of CPU-µs per request of one kind: this tree's, the other's, and their ratio."""

    kind: str
    rounds: int
    here_us: float
    there_us: float
    interval: Interval


def main(words: Sequence[str]) -> int:
    """Print the table; 0 also where this tree is slower."""
    arguments = _parser().parse_args(words)
    cache: Path = arguments.cache.resolve()
    models.ensure(cache / "models")
    tree = checked_out(arguments.revision, cache)
    rows = measured(tree, cache, arguments.only, arguments)
    print(table(arguments.revision, rows))
    return 0


def checked_out(revision: str, cache: Path) -> Path:
    """A worktree of `revision` with its own environment, kept for the next time.

    Raises CalledProcessError where there is no such revision, or it cannot be set up.
    """
    name = _git("rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    tree = cache / "against" / name
    if not (tree / "dev").exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(tree), name)
    with (cache / "against" / f"{name}.log").open("wb") as log:
        subprocess.run(
            ["./dev", "setup"], cwd=tree, stdout=log, stderr=log, timeout=SETUP_S, check=True
        )
    return tree


def measured(
    tree: Path, cache: Path, kinds: Sequence[str], arguments: argparse.Namespace
) -> list[Row]:
    """Both trees' servers, started `starts` times, each kind `rounds` times at each in turns."""
    found: dict[tuple[str, bool], list[float]] = {key: [] for key in product(kinds, (True, False))}
    each = -(-arguments.rounds // arguments.starts)
    for number in range(arguments.starts):
        with ExitStack() as stack:
            peers = {
                here: stack.enter_context(
                    modelyard.started(cache / "models" / "serving", cache, tree=where)
                )
                for here, where in ((True, ROOT), (False, tree))
            }
            for turn in range(each):
                for (kind, here), measure in _turn(peers, kinds, arguments.duration):
                    found[kind, here].append(measure())
                print(f"start {number + 1}, round {turn + 1}", file=sys.stderr, flush=True)
    return [_row(kind, found[kind, True], found[kind, False]) for kind in kinds]


def table(revision: str, rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        f"| request | rounds | CPU-µs here | at {revision} | ratio | 95 % |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        ratio, lower, upper = row.interval
        lines.append(
            f"| {row.kind} | {row.rounds} | {row.here_us:.1f} | {row.there_us:.1f} "
            f"| {ratio:.3f} | {lower:.3f} to {upper:.3f} |"
        )
    return "\n".join(lines)


def ratio_of_medians(
    here: Sequence[float], there: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """With its bootstrap interval: both samples drawn again, with replacement."""
    dice = random.Random(seed)
    drawn = sorted(
        median(dice.choices(here, k=len(here))) / median(dice.choices(there, k=len(there)))
        for _ in range(resamples)
    )
    lower, upper = drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples)]
    return Interval(median(here) / median(there), lower, upper)


def _turn(
    peers: dict[bool, Peer], kinds: Sequence[str], duration_s: float
) -> Iterator[tuple[tuple[str, bool], Callable[[], float]]]:
    """Every kind at both servers once, in a random order."""
    order = list(product(kinds, peers))
    random.shuffle(order)
    for kind, here in order:
        shot = SHOTS[kind](models.identity_problem("identity"))
        peer = peers[here]
        once = partial(fire, shot, peer.address(shot.wire), peer.process, CONCURRENCY, duration_s)
        yield (kind, here), lambda once=once: once().cpu_us  # type: ignore[misc]


def _row(kind: str, here: Sequence[float], there: Sequence[float]) -> Row:
    return Row(kind, len(here), median(here), median(there), ratio_of_medians(here, there))


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=SETUP_S, check=True
    )
    return done.stdout.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks against", description=__doc__)
    add = parser.add_argument
    add("revision", metavar="REV", help="the commit to compare with")
    add("--only", nargs="+", choices=SHOTS, default=tuple(SHOTS), help="kinds of requests (all)")
    add("--rounds", type=int, default=9, help="of each kind at each server (9)")
    add("--starts", type=int, default=3, help="times that both servers are started (3)")
    add("--duration", type=float, default=3.0, metavar="S", help="seconds per measurement (3)")
    add("--cache", type=Path, default=ROOT / ".cache", metavar="DIR",
        help="where worktrees, models and logs are kept (.cache)")  # fmt: skip
    return parser
