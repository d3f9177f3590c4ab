"""Both trees' servers at once, asked in turns, and started several times."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.against.verdict import Metric, Row, row
from benchmarks.peers.seam import Peer


class Plan(NamedTuple):
    """How often each kind is measured at each server, over how many starts, for how many seconds
    at a time."""

    rounds: int
    starts: int
    duration_s: float


class Kind(NamedTuple):
    """One thing to measure at a running server. `measure` gets the server and the seconds."""

    name: str
    metric: Metric
    measure: Callable[[Peer, float], float]


class Subject(NamedTuple):
    """What is compared in one pair of servers.

    `prepare` makes the model repository in the cache and returns its folder; `started` runs a
    tree's server on it: `started(repository, cache, tree)`.
    """

    prepare: Callable[[Path], Path]
    started: Callable[[Path, Path, Path], AbstractContextManager[Peer]]
    kinds: tuple[Kind, ...]


Trees = tuple[Path, Path]
"""This tree, and the other one."""

Taken = dict[tuple[str, int], list[float]]
"""What was measured, by kind and by which of the trees it was."""


def measured(trees: Trees, cache: Path, subjects: Sequence[Subject], plan: Plan) -> list[Row]:
    """A row for every kind of every subject. Raises PeerFailed, WrongAnswer, NoLoadGenerator."""
    repositories = [subject.prepare(cache) for subject in subjects]
    taken: Taken = {}
    for start in range(plan.starts):
        for subject, repository in zip(subjects, repositories, strict=True):
            with ExitStack() as stack:
                peers = [
                    stack.enter_context(subject.started(repository, cache, tree)) for tree in trees
                ]
                for _ in range(-(-plan.rounds // plan.starts)):
                    _turn(subject.kinds, peers, plan.duration_s, taken)
        print(f"start {start + 1} of {plan.starts} is done", file=sys.stderr, flush=True)
    return [
        row(kind.name, kind.metric, taken[kind.name, 0], taken[kind.name, 1])
        for kind in _kinds(subjects)
    ]


def _turn(kinds: Sequence[Kind], peers: Sequence[Peer], duration_s: float, taken: Taken) -> None:
    """Every kind at both servers once, in a random order."""
    order = list(product(kinds, range(len(peers))))
    random.shuffle(order)
    for kind, which in order:
        value = kind.measure(peers[which], duration_s)
        taken.setdefault((kind.name, which), []).append(value)
        where = ("here", "there")[which]
        print(f"{kind.name}, {where}: {value:.1f} {kind.metric.unit}", file=sys.stderr, flush=True)


def _kinds(subjects: Sequence[Subject]) -> Iterator[Kind]:
    for subject in subjects:
        yield from subject.kinds
