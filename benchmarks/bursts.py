"""CPU time of one kind of request against another's, in bursts of milliseconds that take turns.

What a difference of a few microseconds needs: machines change their speed by more than that within
a second, and so does a server from one start to the next. So one server is asked over connections
that stay, a few requests of each kind after the other, some hundred times.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from time import clock_gettime_ns
from typing import NamedTuple

import grpc

from benchmarks.rounds import Spread, spread_of
from benchmarks.shots import TIMEOUT_S, Shot, WrongAnswer

PASSES = 3
"""Requests on each connection, or stream, in a burst."""

OF_GRPC = ("content-type", "te")
"""Headers that grpcio sends of its own."""

Ask = Callable[[Shot], None]
"""Send a shot on every connection, and wait for all answers. Raises WrongAnswer."""


class More(NamedTuple):
    """CPU-µs that a request of one kind takes above one of another, whose median is `base_us`."""

    base_us: float
    us: Spread


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

        def ask(shot: Shot) -> None:
            lines = [f"POST {shot.path} HTTP/1.1", f"host: {address}", *shot.headers]
            head = "\r\n".join([*lines, f"content-length: {len(shot.body)}", "", ""])
            request = head.encode() + shot.body
            for each in connections:
                each.sendall(request)
            for each in reversed(connections):  # or waking us for each would be part of it
                _read_answer(each, shot)

        yield ask


@contextmanager
def grpc_asker(address: str, concurrency: int) -> Iterator[Ask]:
    """So many streams on one connection."""
    with grpc.insecure_channel(address) as channel:

        def ask(shot: Shot) -> None:
            call = channel.unary_unary(shot.path, bytes, bytes)
            own = [header.split(": ", 1) for header in shot.headers]
            metadata = tuple((name, value) for name, value in own if name not in OF_GRPC)
            message = shot.body[5:]
            answers = [
                call.future(message, metadata=metadata, timeout=TIMEOUT_S)
                for _ in range(concurrency)
            ]
            try:
                for answer in answers:
                    answer.result()
            except grpc.RpcError as error:
                raise WrongAnswer(f"{shot.problem.model} over gRPC: {error}") from error

        yield ask


def compare(
    pid: int,
    ask: Ask,
    shots: Mapping[str, Shot],
    pairs: tuple[tuple[str, str], ...],
    *,
    concurrency: int,
    rounds: int,
) -> dict[tuple[str, str], More]:
    """For each pair of names of `shots`, what the first takes above the second.

    CPU time is that of the process `pid` alone. Every other round goes backwards. Raises
    WrongAnswer.
    """
    for shot in shots.values():
        ask(shot)
    taken: dict[str, list[float]] = {name: [] for name in shots}
    for number in range(rounds):
        names = list(shots)
        for name in reversed(names) if number % 2 else names:
            before_ns = _cpu_ns(pid)
            for _ in range(PASSES):
                ask(shots[name])
            spent_ns = _cpu_ns(pid) - before_ns
            taken[name].append(spent_ns / 1e3 / (PASSES * concurrency))
    return {
        (name, base): More(
            median(taken[base]),
            spread_of([one - to for one, to in zip(taken[name], taken[base], strict=True)]),
        )
        for name, base in pairs
    }


def _cpu_ns(pid: int) -> int:
    """Of all threads of another process so far: what clock_getcpuclockid(3) names on Linux."""
    return clock_gettime_ns((~pid << 3) | 2)


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
