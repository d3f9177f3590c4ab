"""Both trees' servers at once, asked in turns, and started several times."""

import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.against.verdict import Criterion, RatioRow, row
from benchmarks.peers.seam import Peer


class Schedule(NamedTuple):
    """How often each measurement is taken at each server, over how many starts, and for how many
    seconds at a time."""

    rounds: int
    starts: int
    duration_s: float


class Measurement(NamedTuple):
    """One thing to measure at a running server. `measure` gets the server and the seconds."""

    name: str
    criterion: Criterion
    measure: Callable[[Peer, float], float]


class Subject(NamedTuple):
    """What is compared in one pair of servers.

    `prepare` makes the model repository in the cache and returns its folder; `started` runs a
    tree's server on it: `started(repository, cache, tree)`.
    """

    prepare: Callable[[Path], Path]
    started: Callable[[Path, Path, Path], AbstractContextManager[Peer]]
    measurements: tuple[Measurement, ...]


Trees = tuple[Path, Path]
"""This tree, and the other one."""

Taken = dict[tuple[str, int], list[float]]
"""What was measured, by the name of the measurement and by which of the trees it was."""


def measured(
    trees: Trees, cache: Path, subjects: Sequence[Subject], schedule: Schedule
) -> list[RatioRow]:
    """A row for every measurement of every subject.

    Raises PeerFailed, WrongAnswer, NoLoadGenerator.
    """
    repositories = [subject.prepare(cache) for subject in subjects]
    taken: Taken = {}
    for start in range(schedule.starts):
        for subject, repository in zip(subjects, repositories, strict=True):
            with ExitStack() as stack:
                peers = [
                    stack.enter_context(subject.started(repository, cache, tree)) for tree in trees
                ]
                for _ in range(-(-schedule.rounds // schedule.starts)):
                    _turn(subject.measurements, peers, schedule.duration_s, taken)
        print(f"start {start + 1} of {schedule.starts} is done", file=sys.stderr, flush=True)
    return [
        row(each.name, each.criterion, taken[each.name, 0], taken[each.name, 1])
        for subject in subjects
        for each in subject.measurements
    ]


def _turn(
    measurements: Sequence[Measurement], peers: Sequence[Peer], duration_s: float, taken: Taken
) -> None:
    """Every measurement at both servers once, in a random order."""
    order = list(product(measurements, range(len(peers))))
    random.shuffle(order)
    for each, which in order:
        value = each.measure(peers[which], duration_s)
        taken.setdefault((each.name, which), []).append(value)
        said = f"{each.name}, {('here', 'there')[which]}: {value:.1f} {each.criterion.unit}"
        print(said, file=sys.stderr, flush=True)
