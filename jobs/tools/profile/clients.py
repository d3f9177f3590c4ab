"""Clients of a server on a Unix socket: each sends its next request when it has its answer."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

WARM_S = 0.5
ANSWER_S = 30.0
"""The longest wait for one answer; longer is an error."""


class ClientLoad(NamedTuple):
    """What clients saw in `seconds`: latencies of answers that came within, and errors.

    answers: all of them, those before and after the measured time too.
    missed: requests that were due and not sent, because answers came too late.
    """

    seconds: float
    latencies_ms: list[float]
    errors: int
    reason: str
    answers: int
    missed: int = 0


def fire(socket: str, requests: Sequence[bytes], concurrency: int, seconds: float) -> ClientLoad:
    """Load for a while, after a short while that does not count."""
    return asyncio.run(_fire(socket, requests, concurrency, seconds))


async def _fire(
    socket: str, requests: Sequence[bytes], concurrency: int, seconds: float
) -> ClientLoad:
    begin = time.monotonic() + WARM_S
    end = begin + seconds
    clients = [_Client(socket, requests, at, begin, end) for at in range(concurrency)]
    await asyncio.gather(*(one.run() for one in clients))
    latencies = [latency for one in clients for latency in one.latencies_ms]
    reasons = [one.reason for one in clients if one.reason]
    answers = sum(one.answers for one in clients)
    return ClientLoad(seconds, latencies, len(reasons), reasons[0] if reasons else "", answers)


class _Client:
    """One connection; it ends at the first error, which is in `reason`."""

    def __init__(
        self, socket: str, requests: Sequence[bytes], at: int, begin: float, end: float
    ) -> None:
        self._socket = socket
        self._requests = requests
        self._next = at
        self._begin = begin
        self._end = end
        self.latencies_ms: list[float] = []
        self.answers = 0
        self.reason = ""

    async def run(self) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                while time.monotonic() < self._end and not self.reason:
                    await asyncio.wait_for(self._exchange(reader, writer), ANSWER_S)
            finally:
                writer.close()
        except TimeoutError:
            self.reason = f"no answer within {ANSWER_S:g} s"
        except (OSError, EOFError, ValueError) as error:
            self.reason = f"the connection broke: {type(error).__name__} {error}"

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._next = (self._next + 1) % len(self._requests)
        sent = time.monotonic()
        writer.write(self._requests[self._next])
        self.reason = await answer_of(reader)
        came = time.monotonic()
        self.answers += 1
        if self.reason:
            return
        if sent >= self._begin and came <= self._end:
            self.latencies_ms.append(1e3 * (came - sent))


async def answer_of(reader: asyncio.StreamReader) -> str:
    """Read an answer; its error, "" for none. Raises EOFError, ValueError."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(_length(head))
    return "" if head.startswith(b"HTTP/1.1 200") else body[:300].decode(errors="replace")


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("an answer without Content-Length")


def percentile(sorted_ms: Sequence[float], percent: float) -> float:
    """The value below which `percent` of them are; NaN of none."""
    if not sorted_ms:
        return float("nan")
    return sorted_ms[min(len(sorted_ms) - 1, int(len(sorted_ms) * percent / 100))]
