"""Requests sent at the times at which others came, whatever answers there are (an open loop).

A latency begins when its request was due, so that one that had to wait for a connection counts
as a client would have seen it.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

from jobs.tools.profile.clients import ANSWER_S, WARM_S, ClientLoad, answer_of

GAP_S = 0.001
"""Between the last arrival and the first of the next round, at least."""


def arrival_times(arrivals_s: Sequence[float], speed: float, seconds: float) -> list[float]:
    """Seconds from the begin at which requests are due until `seconds`: the pattern, `speed` times
    as fast, again and again; after a round the mean gap passes. Pure."""
    scaled = [(one - arrivals_s[0]) / speed for one in arrivals_s]
    pause = max(GAP_S, scaled[-1] / max(1, len(scaled) - 1))
    found: list[float] = []
    begin = 0.0
    while begin < seconds:
        found += [begin + one for one in scaled if begin + one < seconds]
        begin += scaled[-1] + pause
    return found


def replay(
    socket: str, requests: Sequence[bytes], arrivals_s: Sequence[float], speed: float,
    connections: int, seconds: float,
) -> ClientLoad:  # fmt: skip
    """Send them on at most so many connections; those due in the first WARM_S do not count."""
    due = arrival_times(arrivals_s, speed, WARM_S + seconds)
    return asyncio.run(_Replay(socket, requests, due).run(connections, seconds))


class _Replay:
    """All connections take the next request that is due, in their order."""

    def __init__(self, socket: str, requests: Sequence[bytes], due: Sequence[float]) -> None:
        self._socket = socket
        self._requests = requests
        self._due: Iterator[tuple[int, float]] = iter(enumerate(due))
        self._latencies_ms: list[float] = []
        self._answers = 0
        self._reasons: list[str] = []

    async def run(self, connections: int, seconds: float) -> ClientLoad:
        began = time.monotonic()
        await asyncio.gather(*(self._client(began) for _ in range(connections)))
        reason = self._reasons[0] if self._reasons else ""
        # Behind its arrivals the load takes longer than they did.
        took = max(seconds, time.monotonic() - began - WARM_S)
        return ClientLoad(took, self._latencies_ms, len(self._reasons), reason, self._answers)

    async def _client(self, began: float) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                for at, due in self._due:
                    if self._reasons:
                        return
                    await asyncio.sleep(max(0.0, began + due - time.monotonic()))
                    await asyncio.wait_for(self._exchange(reader, writer, at, began, due), ANSWER_S)
            finally:
                writer.close()
        except TimeoutError:
            self._reasons.append(f"no answer within {ANSWER_S:g} s")
        except (OSError, EOFError, ValueError) as error:
            self._reasons.append(f"the connection broke: {type(error).__name__} {error}")

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: int, began: float,
        due: float,
    ) -> None:  # fmt: skip
        writer.write(self._requests[at % len(self._requests)])
        error = await answer_of(reader)
        self._answers += 1
        if error:
            self._reasons.append(error)
        elif due >= WARM_S:
            self._latencies_ms.append(1e3 * (time.monotonic() - began - due))
