"""The labels of windows that were read before, within a bound of memory.

A rollout whose guardrail compares labels looks every second at windows that are as they were.
"""

import hashlib
from collections import OrderedDict
from threading import Lock

from msgspec.structs import replace

from control.drift.packing import unpack_drift
from control.drift.points import Distribution, NumericCounts, VersionDrift

LIMIT_BYTES = 8 * 2**20
"""Of memory, as `_size_of` works it out: three hundred windows of a hundred labels, or thousands of
ten."""

_BASE_BYTES, _BUCKET_BYTES, _CATEGORY_BYTES = 500, 40, 200


class LabelCache:
    """By the digest of a packed window; what was not read for longest goes first. Any thread."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._known: OrderedDict[bytes, tuple[VersionDrift, int]] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def labels_in(self, payload: bytes) -> VersionDrift:
        """What a packed window has without all features but labels."""
        key = hashlib.sha256(payload).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key][0]
        found = unpack_drift(payload)
        labels = tuple(one for one in found.features if one.role == "label")
        made = replace(found, features=labels, profile="")
        with self._lock:
            self._keep(key, made)
        return made

    def _keep(self, key: bytes, made: VersionDrift) -> None:
        size = _BASE_BYTES + sum(_size_of(one.counts) for one in made.features)
        if key in self._known or size > self._limit_bytes:
            return
        self._known[key] = made, size
        self.size_bytes += size
        while self.size_bytes > self._limit_bytes:
            _, (_, gone) = self._known.popitem(last=False)
            self.size_bytes -= gone


def _size_of(counts: Distribution) -> int:
    if isinstance(counts, NumericCounts):
        return _BUCKET_BYTES * len(counts.counts)
    return sum(_CATEGORY_BYTES + len(name) for name in counts.counts)
