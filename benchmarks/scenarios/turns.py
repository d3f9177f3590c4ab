"""Kinds of requests that take turns at one server, and what its processes take for each."""

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.bursts import Kinds, Pairs, grpc_asker, ratios, ratios_of, rest_asker
from benchmarks.peers.seam import Peer
from benchmarks.process import family
from benchmarks.report import Ratio
from benchmarks.shots import answer_size
from benchmarks.steady import take_slices


class Turns(NamedTuple):
    """What is asked, how many at once, and in how many bursts of each kind; over the wire of the
    kinds' shots."""

    scenario: str
    kinds: Kinds
    pairs: Pairs
    concurrency: int
    bursts: int


def take(peer: Peer, turns: Turns) -> Iterator[Ratio]:
    """A ratio for each pair. CPU time is that of all the server's processes; every answer is
    verified beforehand. Raises WrongAnswer."""
    scenario, kinds, pairs, concurrency, bursts = turns
    shots = [shot for of_kind in kinds.values() for shot in of_kind]
    wire = shots[0].wire
    address = peer.address(wire)
    for shot in shots:
        answer_size(shot, address)
    asker = grpc_asker if wire == "gRPC" else rest_asker
    with asker(address, concurrency) as ask:
        found = ratios(
            family(peer.process.pid), ask, kinds, pairs, concurrency=concurrency, rounds=bursts
        )
    for (name, base), times in found.items():
        yield Ratio(scenario, wire, concurrency, name, base, bursts, *times)


def take_steady(peer: Peer, turns: Turns) -> Iterator[Ratio]:
    """The same without a break, over REST, in so many slices instead of bursts."""
    scenario, kinds, pairs, concurrency, slices = turns
    for shots in kinds.values():
        for shot in shots:
            answer_size(shot, peer.rest)
    pids = family(peer.process.pid)
    taken = take_slices(pids, peer.rest, kinds, connections=concurrency, slices=slices)
    for (name, base), times in ratios_of(taken, pairs).items():
        wire = next(iter(kinds[name])).wire
        yield Ratio(scenario, wire, concurrency, name, base, slices, *times)
