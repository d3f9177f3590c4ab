"""Requests that a profile sends again: when each came, and what its inputs were like. Pure.

They come from the samples of a gateway, which keep the shape of every tensor, statistics of it and,
where an administrator wanted that, its first values.
"""

import msgspec

SAMPLED = "sampled"
"""What a spec says as its data for requests that were sampled."""

LEAST_REQUESTS = 20
_HEAD_BYTES = 5
MOST_BYTES = 4 << 20
"""Of a job's traffic, encoded; the newest requests are kept."""

MOST_TOTAL_BYTES = 64 << 20
"""Of the traffic of all jobs; more is refused."""


class TrafficTensor(msgspec.Struct, frozen=True):
    """An input. `values`: all of its elements, flat, or none where not all were kept; then `least`,
    `most` and `mean` say what they were like, null where nothing does."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[bool | int | float, ...] = ()
    least: float | None = None
    most: float | None = None
    mean: float | None = None


class TrafficRequest(msgspec.Struct, frozen=True):
    """A request that came `at_s` seconds after the first."""

    at_s: float
    inputs: tuple[TrafficTensor, ...]


Traffic = tuple[TrafficRequest, ...]


def encode_traffic(traffic: Traffic) -> bytes:
    """MessagePack of the newest requests that fit into MOST_BYTES. JSON has no NaN or infinity."""
    encoded = [msgspec.msgpack.encode(one) for one in traffic]
    total = _HEAD_BYTES
    for count, one in enumerate(reversed(encoded)):
        total += len(one)
        if total > MOST_BYTES:
            encoded = encoded[len(encoded) - count :]
            break
    return msgspec.msgpack.encode([msgspec.Raw(one) for one in encoded])


def decode_traffic(payload: bytes) -> Traffic:
    """Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(payload, type=Traffic)
