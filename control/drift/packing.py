"""Distributions as bytes for the database: msgpack, compressed. Pure."""

import zlib

import msgspec

from control.drift.points import VersionDrift

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(VersionDrift)


def pack_drift(counts: VersionDrift) -> bytes:
    return zlib.compress(_encoder.encode(counts), 1)


def unpack_drift(payload: bytes) -> VersionDrift:
    return _decoder.decode(zlib.decompress(payload))
