"""CPU time and throughput of one kind of request against another's, in slices that take turns.

In a slice every connection sends its next request when it has its answer. So throughput is what the
server can do without a break, where the last answers of a burst (`benchmarks.bursts`) leave cores
idle: what requests of milliseconds need.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from benchmarks.bursts import Burst, Kinds, cpu_ns, request_bytes
from benchmarks.shots import TIMEOUT_S, Shot, WrongAnswer

SLICE_S = 1.0


def take_slices(
    pids: Sequence[int], address: str, kinds: Kinds, *, connections: int, slices: int
) -> dict[str, list[Burst]]:
    """Ask for every kind over REST in each of so many rounds; every other one goes backwards.

    CPU time is that of these processes. Raises WrongAnswer.
    """
    taken: dict[str, list[Burst]] = {name: [] for name in kinds}
    for number in range(slices):
        names = list(kinds)
        for name in reversed(names) if number % 2 else names:
            taken[name].append(asyncio.run(_slice(pids, address, kinds[name], connections)))
    return taken


async def _slice(
    pids: Sequence[int], address: str, shots: Sequence[Shot], connections: int
) -> Burst:
    requests = cycle([request_bytes(shot, address) for shot in shots])
    before, began_ns = cpu_ns(pids), time.perf_counter_ns()
    until = time.monotonic() + SLICE_S
    async with asyncio.timeout(SLICE_S + TIMEOUT_S):
        counts = await asyncio.gather(
            *(_keep_asking(address, requests, until) for _ in range(connections))
        )
    lasted_ns, count = time.perf_counter_ns() - began_ns, sum(counts)
    spent_ns = sum(ns - before[pid] for pid, ns in cpu_ns(pids).items())
    return Burst(spent_ns / 1e3 / count, lasted_ns / 1e3 / count)


async def _keep_asking(address: str, requests: Iterator[bytes], until: float) -> int:
    """How many were answered; the last one after `until`."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    count = 0
    try:
        while time.monotonic() < until or not count:
            writer.write(next(requests))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise WrongAnswer(f"over REST at {address}: {head[:500]!r}")
            _, _, rest = head.partition(b"\r\ncontent-length:")
            await reader.readexactly(int(rest.partition(b"\r\n")[0]))
            count += 1
    finally:
        writer.close()
    return count
