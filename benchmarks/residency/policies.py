"""Hit rates of eviction policies over one trace of requests, where `room` models fit. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush


def lru_hits(trace: Sequence[int], room: int) -> int:
    """The least recently used goes."""
    resident: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for model in trace:
        if model in resident:
            hits += 1
            resident.move_to_end(model)
            continue
        if len(resident) >= room:
            resident.popitem(last=False)
        resident[model] = None
    return hits


def clairvoyant_hits(trace: Sequence[int], room: int) -> int:
    """Belady's: the one whose next request is farthest away goes. Nothing that has to load what is
    asked for does better."""
    never = len(trace)
    following = [never] * len(trace)
    last: dict[int, int] = {}
    for at in range(len(trace) - 1, -1, -1):
        following[at] = last.get(trace[at], never)
        last[trace[at]] = at
    resident: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    hits = 0
    for at, model in enumerate(trace):
        if model in resident:
            hits += 1
        elif len(resident) >= room:
            while True:
                negative, candidate = heappop(farthest)
                if resident.get(candidate) == -negative:
                    del resident[candidate]
                    break
        resident[model] = following[at]
        heappush(farthest, (-following[at], model))
    return hits
