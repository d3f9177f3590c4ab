"""Requests sent at the times at which others came, whatever answers there are (an open loop).

A latency begins when its request was due, so that one that had to wait for a connection counts
as a client would have seen it.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jobs.tools.profile.clients import ANSWER_S, WARM_S, ClientLoad, answer_of

GAP_S = 0.001
"""Between the last arrival and the first of the next round, at least."""

LATE = 2
"""A load ends after so many times its length: a choice that is slower than what arrives would take
the longer the more arrives."""


class Arrival(NamedTuple):
    """Which of the requests comes, and when, in seconds from the begin."""

    request: int
    due_s: float


def arrivals_of(arrivals_s: Sequence[float], speed: float, seconds: float) -> list[Arrival]:
    """Those due until `seconds`, `speed` times as fast as they came: the newest of a pattern that
    is longer; else all of it again and again, a mean gap after each round. Pure."""
    scaled = [(one - arrivals_s[0]) / speed for one in arrivals_s]
    if scaled[-1] >= seconds:
        begin = scaled[-1] - seconds
        return [Arrival(at, one - begin) for at, one in enumerate(scaled) if one >= begin]
    pause = max(GAP_S, scaled[-1] / max(1, len(scaled) - 1))
    found: list[Arrival] = []
    begin = 0.0
    while begin < seconds:
        due = (Arrival(at, begin + one) for at, one in enumerate(scaled))
        found += [one for one in due if one.due_s < seconds]
        begin += scaled[-1] + pause
    return found


def replay(
    socket: str, requests: Sequence[bytes], arrivals_s: Sequence[float], speed: float,
    connections: int, seconds: float,
) -> ClientLoad:  # fmt: skip
    """Send them on at most so many connections; those due in the first WARM_S do not count. What
    was not sent in LATE times the time is `missed`."""
    due = arrivals_of(arrivals_s, speed, WARM_S + seconds)
    return asyncio.run(_Replay(socket, requests, due, seconds).run(connections))


class _Replay:
    """All connections take the next request that is due, in their order."""

    def __init__(
        self, socket: str, requests: Sequence[bytes], due: Sequence[Arrival], seconds: float
    ) -> None:
        self._socket = socket
        self._requests = requests
        self._due: Iterator[Arrival] = iter(due)
        self._seconds = seconds
        self._latencies_ms: list[float] = []
        self._answers = 0
        self._reasons: list[str] = []

    async def run(self, connections: int) -> ClientLoad:
        began = time.monotonic()
        await asyncio.gather(*(self._client(began) for _ in range(connections)))
        reason = self._reasons[0] if self._reasons else ""
        # Behind its arrivals the load takes longer than they did.
        took = max(self._seconds, time.monotonic() - began - WARM_S)
        missed = sum(1 for _ in self._due)
        return ClientLoad(
            took, self._latencies_ms, len(self._reasons), reason, self._answers, missed
        )

    async def _client(self, began: float) -> None:
        end = began + WARM_S + LATE * self._seconds
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                while not self._reasons and time.monotonic() < end:
                    one = next(self._due, None)
                    if one is None:
                        return
                    due = began + one.due_s
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    await asyncio.wait_for(self._exchange(reader, writer, one, due), ANSWER_S)
            finally:
                writer.close()
        except TimeoutError:
            self._reasons.append(f"no answer within {ANSWER_S:g} s")
        except (OSError, EOFError, ValueError) as error:
            self._reasons.append(f"the connection broke: {type(error).__name__} {error}")

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one: Arrival, due: float
    ) -> None:
        writer.write(self._requests[one.request])
        error = await answer_of(reader)
        self._answers += 1
        if error:
            self._reasons.append(error)
        elif one.due_s >= WARM_S:
            self._latencies_ms.append(1e3 * (time.monotonic() - due))
