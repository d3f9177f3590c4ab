"""What was kept of one model's requests: the newest, up to so many bytes. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from control.gateways.queries import SampledRequest, pack_sample

MOST_KEPT = 5_000

PER_S = 200.0
"""Samples a second of one model at most: one takes some 40 µs of the loop."""


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """Which of a model's requests are kept: `percent` of them, in `max_bytes`. `values`: the first
    elements of tensors, too. `by` whose wish it is; `until` in seconds since the epoch."""

    model: str
    percent: float
    max_bytes: int
    values: bool
    by: str
    until: float


class StoredSample(NamedTuple):
    """One request, packed as it will travel. `number` grows from one to the next."""

    number: int
    id: str
    packed: bytes


class SampleRing:
    """The newest requests of one model; the oldest give way."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.taken = 0
        self._kept: deque[StoredSample] = deque()
        self._credit = PER_S
        self._credited_s = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def may_take(self, now_s: float) -> bool:
        """Whether one more fits into the samples of this second; if so it counts."""
        self._credit = min(PER_S, self._credit + (now_s - self._credited_s) * PER_S)
        self._credited_s = now_s
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def keep(self, sample: SampledRequest, max_bytes: int) -> None:
        one = StoredSample(sample.number, sample.id, pack_sample(sample))
        self._kept.append(one)
        self.taken += 1
        self.size_bytes += _size(one)
        while self._kept and (self.size_bytes > max_bytes or len(self._kept) > MOST_KEPT):
            self.size_bytes -= _size(self._kept.popleft())

    def newest_first(self) -> Iterator[StoredSample]:
        return reversed(self._kept)


def _size(one: StoredSample) -> int:
    return len(one.packed) + len(one.id)
