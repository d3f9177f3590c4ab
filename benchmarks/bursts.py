"""CPU time of one kind of request against another's, in bursts of milliseconds that take turns.

What a difference of a few microseconds needs: machines change their speed by more than that within
a second, and so does a server from one start to the next. So one server is asked over connections
that stay, a few requests of each kind after the other, some hundred times.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle, islice
from statistics import median
from time import clock_gettime_ns, perf_counter_ns
from typing import Any, NamedTuple

import grpc

from benchmarks.rounds import Spread, spread_of
from benchmarks.shots import TIMEOUT_S, Shot, WrongAnswer

PASSES = 3
"""Requests on each connection, or stream, in a burst."""

OF_GRPC = ("content-type", "te")
"""Headers that grpcio sends of its own."""

Ask = Callable[[Sequence[Shot]], None]
"""Send the shots on the connections, in turn and again from the first, and wait for all answers.
Raises WrongAnswer."""

Kinds = Mapping[str, Sequence[Shot]]
"""What a request of each kind is: one shot for all connections, or several."""

Pairs = Sequence[tuple[str, str]]
"""Names of kinds, and what each is held against."""


class Burst(NamedTuple):
    """Per request of one burst: CPU time of the server, and time on the clock."""

    cpu_us: float
    wall_us: float


class More(NamedTuple):
    """CPU-µs that a request of one kind takes above one of another, whose median is `base_us`."""

    base_us: float
    us: Spread


class Times(NamedTuple):
    """How many times as much CPU and time a request of one kind takes as one of another, whose
    median is `base_us` CPU-µs."""

    base_us: float
    cpu: Spread
    wall: Spread


@contextmanager
def rest_asker(address: str, concurrency: int) -> Iterator[Ask]:
    """So many connections over HTTP/1.1."""
    host, _, port = address.partition(":")
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
            for _ in range(concurrency)
        ]
        for each in connections:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(shots: Sequence[Shot]) -> None:
            requests = [request_bytes(shot, address) for shot in shots]
            for each, request in zip(connections, cycle(requests), strict=False):
                each.sendall(request)
            asked = list(zip(connections, cycle(shots), strict=False))
            for each, shot in reversed(asked):  # or waking us for each would be part of it
                _read_answer(each, shot)

        yield ask


@contextmanager
def grpc_asker(address: str, concurrency: int) -> Iterator[Ask]:
    """So many streams on one connection."""
    with grpc.insecure_channel(address) as channel:

        def ask(shots: Sequence[Shot]) -> None:
            answers = [_begin(channel, shot) for shot in islice(cycle(shots), concurrency)]
            try:
                for answer in answers:
                    answer.result()
            except grpc.RpcError as error:
                raise WrongAnswer(f"{shots[0].problem.model} over gRPC: {error}") from error

        yield ask


def compare(
    pids: Sequence[int], ask: Ask, kinds: Kinds, pairs: Pairs, *, concurrency: int, rounds: int
) -> dict[tuple[str, str], More]:
    """For each pair of names of `kinds`, what the first takes above the second; as `take_turns`."""
    taken = take_turns(pids, ask, kinds, concurrency=concurrency, rounds=rounds)
    return {
        (name, base): More(
            _base_us(taken[base]),
            spread_of(
                [one.cpu_us - to.cpu_us for one, to in zip(taken[name], taken[base], strict=True)]
            ),
        )
        for name, base in pairs
    }


def ratios(
    pids: Sequence[int], ask: Ask, kinds: Kinds, pairs: Pairs, *, concurrency: int, rounds: int
) -> dict[tuple[str, str], Times]:
    """For each pair of names of `kinds`, how many times the second's the first takes; as
    `take_turns`."""
    return ratios_of(take_turns(pids, ask, kinds, concurrency=concurrency, rounds=rounds), pairs)


def ratios_of(taken: Mapping[str, Sequence[Burst]], pairs: Pairs) -> dict[tuple[str, str], Times]:
    """The same of what has been taken, by the names of kinds."""
    found = {}
    for name, base in pairs:
        both = list(zip(taken[name], taken[base], strict=True))
        found[name, base] = Times(
            _base_us(taken[base]),
            spread_of([one.cpu_us / to.cpu_us for one, to in both]),
            spread_of([one.wall_us / to.wall_us for one, to in both]),
        )
    return found


def take_turns(
    pids: Sequence[int], ask: Ask, kinds: Kinds, *, concurrency: int, rounds: int
) -> dict[str, list[Burst]]:
    """Ask for every kind in each round; every other one goes backwards.

    CPU time is that of these processes. Raises WrongAnswer.
    """
    for shots in kinds.values():
        ask(shots)
    taken: dict[str, list[Burst]] = {name: [] for name in kinds}
    requests = PASSES * concurrency
    for number in range(rounds):
        names = list(kinds)
        for name in reversed(names) if number % 2 else names:
            before, began_ns = cpu_ns(pids), perf_counter_ns()
            for _ in range(PASSES):
                ask(kinds[name])
            after, lasted_ns = cpu_ns(pids), perf_counter_ns() - began_ns
            spent_ns = sum(ns - before[pid] for pid, ns in after.items())
            taken[name].append(Burst(spent_ns / 1e3 / requests, lasted_ns / 1e3 / requests))
    return taken


def _base_us(bursts: Sequence[Burst]) -> float:
    return median(burst.cpu_us for burst in bursts)


def cpu_ns(pids: Sequence[int]) -> dict[int, int]:
    """Of all threads of other processes so far, by their ids; without those that have ended."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = clock_gettime_ns((~pid << 3) | 2)  # as clock_getcpuclockid(3) on Linux
    return found


def request_bytes(shot: Shot, address: str) -> bytes:
    """A shot as HTTP/1.1."""
    lines = [f"POST {shot.path} HTTP/1.1", f"host: {address}", *shot.headers]
    head = "\r\n".join([*lines, f"content-length: {len(shot.body)}", "", ""])
    return head.encode() + shot.body


def _begin(channel: grpc.Channel, shot: Shot) -> Any:
    call = channel.unary_unary(shot.path, bytes, bytes)
    own = [header.split(": ", 1) for header in shot.headers]
    metadata = tuple((name, value) for name, value in own if name not in OF_GRPC)
    return call.future(shot.body[5:], metadata=metadata, timeout=TIMEOUT_S)


def _read_answer(connection: socket.socket, shot: Shot) -> None:
    found = b""
    while (end := found.find(b"\r\n\r\n")) < 0:
        found += _more(connection, shot)
    head = found[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise WrongAnswer(f"{shot.problem.model} over REST: {found[:500]!r}")
    _, _, rest = head.partition(b"\r\ncontent-length:")
    missing = int(rest.partition(b"\r\n")[0]) - (len(found) - end - 4)
    while missing > 0:
        missing -= len(_more(connection, shot))


def _more(connection: socket.socket, shot: Shot) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise WrongAnswer(f"{shot.problem.model} over REST: the connection was closed")
    return received
