"""The last requests of a gateway in one block of memory: fixed records, with texts beside some.

Bounded by their number and the size of their texts, whichever is reached first.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

MOST_RECORDS = 100_000
MOST_TEXT_BYTES = 20 * 2**20
TEXT_BYTES = 64
"""Of a text beside its characters, as Python keeps it."""

_RECORD = Struct("<QQIIIIHH")
_TYPE = numpy.dtype(
    [
        ("number", "<u8"),
        ("arrived_ns", "<u8"),
        ("part", "<u4"),
        ("target", "<u4"),
        ("queue_us", "<u4"),
        ("compute_us", "<u4"),
        ("outcome", "<u2"),
        ("instance", "<u2"),
    ]
)
_DURATIONS = frozenset(("queue_us", "compute_us"))
_MOST_US = (1 << 32) - 1
NOT_EXECUTED = (1 << 16) - 1
"""In place of an instance."""


Places = NDArray[numpy.int64]
Columns = NDArray[numpy.void]


class RingRecord(NamedTuple):
    """A request that has ended. `target` and `outcome` are the caller's codes. `arrived_ns` on
    time.monotonic_ns; `queue_us` until its execution began, or all its time where none did;
    `instance` NOT_EXECUTED then. `client_id` and `error`: "" for none."""

    number: int
    part: int
    target: int
    arrived_ns: int
    queue_us: int
    compute_us: int
    outcome: int
    instance: int
    client_id: str
    error: str


class RequestRing:
    """One thread adds and looks. Takes 40 bytes for each record it may have from the beginning, of
    which the kernel gives what is written to, 16 more as records come, and their texts."""

    def __init__(self, most: int = MOST_RECORDS, most_text_bytes: int = MOST_TEXT_BYTES) -> None:
        self._most = most
        self._most_text_bytes = most_text_bytes
        self._buffer = bytearray(most * _RECORD.size)
        self._columns = numpy.frombuffer(self._buffer, _TYPE)
        self._ids: list[str] = []
        self._errors: list[str] = []
        self._added = 0
        self._oldest = 0
        """Of those added, the first that is still there."""
        self.text_bytes = 0

    def __len__(self) -> int:
        return self._added - self._oldest

    def add(
        self,
        records: Mapping[str, NDArray[numpy.int64]],
        client_ids: Sequence[str],
        errors: Sequence[str],
    ) -> None:
        """Add many, the oldest first, and no more than the ring holds: columns by the names of
        RingRecord's fields, and its texts. Durations beyond 71 minutes are cut to that."""
        count, begin = len(client_ids), self._added % self._most
        until_wrap = min(count, self._most - begin)
        self._put(begin, slice(0, until_wrap), records, client_ids, errors)
        if until_wrap < count:
            self._put(0, slice(until_wrap, count), records, client_ids, errors)
        self._added += count
        self._oldest = max(self._oldest, self._added - self._most)
        while self.text_bytes > self._most_text_bytes:
            self._drop_oldest()

    def _put(
        self,
        begin: int,
        part: slice,
        records: Mapping[str, NDArray[numpy.int64]],
        client_ids: Sequence[str],
        errors: Sequence[str],
    ) -> None:
        """This part of them from one place on."""
        places = slice(begin, begin + part.stop - part.start)
        for name, column in records.items():
            values = column[part]
            self._columns[name][places] = values.clip(0, _MOST_US) if name in _DURATIONS else values
        for texts, new in ((self._ids, client_ids[part]), (self._errors, errors[part])):
            self.text_bytes += _size(new) - _size(texts[places])
            texts[places] = new

    def _drop_oldest(self) -> None:
        place = self._oldest % self._most
        self._oldest += 1
        self.text_bytes -= _size((self._ids[place], self._errors[place]))
        self._ids[place] = self._errors[place] = ""

    def places(self) -> Places:
        """Of all records, the newest first: for `columns`, and for `record`."""
        return numpy.arange(self._added - 1, self._oldest - 1, -1) % self._most

    def columns(self) -> Columns:
        """The fields of all places, also of those that hold nothing; do not keep it."""
        return self._columns

    def of_client(self, client_id: str, places: Places) -> Places:
        """Those of the places whose client gave this id."""
        ids = self._ids
        return numpy.array([place for place in places if ids[place] == client_id], numpy.int64)

    def record(self, place: int) -> RingRecord:
        number, arrived_ns, part, target, queue_us, compute_us, outcome, instance = (
            _RECORD.unpack_from(self._buffer, place * _RECORD.size)
        )
        return RingRecord(
            number,
            part,
            target,
            arrived_ns,
            queue_us,
            compute_us,
            outcome,
            instance,
            self._ids[place],
            self._errors[place],
        )


def _size(texts: Sequence[str]) -> int:
    if not any(texts):  # as most are
        return 0
    return sum(map(len, texts)) + TEXT_BYTES * (len(texts) - texts.count(""))
