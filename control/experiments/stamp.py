"""Route stamps: which arm answered whom, signed, so that feedback may bring it back. Pure.

A stamp is `base64url(payload).mac`: what an arm's answers have in common is packed and encoded
once (`Stamper`), so that stamping one costs a few microseconds. The MAC is HMAC-SHA256 by a key
made from the database's secret, cut to 16 bytes.
"""

import hmac
import struct
from base64 import urlsafe_b64decode
from binascii import Error, b2a_base64
from dataclasses import dataclass
from hashlib import sha256

from control.errors import Invalid

MOST_CHARACTERS = 2_048
LASTS_S, SKEW_S = 90 * 86_400, 300
KEY_BYTES = 15
"""Of a unit's key: 120 bits, so that two units never share one."""

_FORMAT = 1
_MAC_BYTES = 16
_MOST_NAME_BYTES = 255
_TAIL = struct.Struct(f">{KEY_BYTES}sI")  # unit key, seconds since the epoch
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class ArmIdentity:
    """What all answers of one arm have in common. `subject`: the rollout's or experiment's id."""

    route: str
    arm: str
    model: str
    version: int
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp that was read and found genuine. `unit`: the unit's key, "" for none; `at`: seconds
    since the epoch."""

    route: ArmIdentity
    unit: str
    at: int


def key_of(secret: bytes) -> bytes:
    """The key to sign stamps with, from the database's secret."""
    return hmac.digest(secret, b"modelyard route stamp", "sha256")


def unit_key(unit: str) -> bytes:
    """What is kept and sent around instead of the unit, which may be a user's name."""
    return sha256(unit.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


NO_UNIT = bytes(KEY_BYTES)
"""Of a request that had none."""


class Stamper:
    """Signs for one arm. Raises ValueError for a name of more than 255 bytes."""

    __slots__ = ("_head", "_key")

    def __init__(self, key: bytes, route: ArmIdentity) -> None:
        self._key = key
        self._head = _encoded(_packed(route))

    def sign(self, unit: bytes, now: float) -> str:
        """`unit`: of `unit_key`; `now` in seconds since the epoch."""
        payload = self._head + _encoded(_TAIL.pack(unit, int(now)))
        return (payload + b"." + _mac(self._key, payload)).decode("ascii")


def read(key: bytes, text: str, now: float) -> Stamp:
    """Raises Invalid for a stamp that this key has not signed, or one of another time."""
    payload, dot, mac = text.partition(".")
    if not dot or len(text) > MOST_CHARACTERS or not text.isascii():
        raise Invalid("the stamp is none: send the whole text that the response brought", "stamp")
    if not hmac.compare_digest(_mac(key, payload.encode()), mac.encode()):
        raise Invalid("the stamp was not signed by this server", "stamp")
    stamp = _unpacked(payload)
    if not now - LASTS_S <= stamp.at <= now + SKEW_S:
        days = LASTS_S // 86_400
        raise Invalid(f"the stamp is older than {days} days, or of the future", "stamp")
    return stamp


def _packed(route: ArmIdentity) -> bytes:
    """A multiple of three bytes, so that its base64 can be put in front of the tail's."""
    names = [name.encode() for name in (route.route, route.arm, route.model, route.subject)]
    if any(len(name) > _MOST_NAME_BYTES for name in names):
        raise ValueError(f"a stamp holds names of at most {_MOST_NAME_BYTES} bytes: {route}")
    head = b"".join(bytes([len(name)]) + name for name in names)
    head = bytes([_FORMAT]) + route.version.to_bytes(8) + head
    return head + bytes(-len(head) % 3)


def _unpacked(payload: str) -> Stamp:
    """Only of what was signed: anything unexpected is of another build."""
    try:
        packed = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        if packed[0] != _FORMAT:
            raise ValueError(f"format {packed[0]}")
        names, start = [], 9
        for _ in range(4):
            end = start + 1 + packed[start]
            names.append(packed[start + 1 : end].decode())
            start = end
        unit, at = _TAIL.unpack(packed[-_TAIL.size :])
    except (Error, ValueError, IndexError, struct.error) as error:
        raise Invalid(f"the stamp is of another build: {error}", "stamp") from None
    route, arm, model, subject = names
    version = int.from_bytes(packed[1:9])
    who = "" if unit == NO_UNIT else unit.hex()
    return Stamp(ArmIdentity(route, arm, model, version, subject), who, at)


def _mac(key: bytes, payload: bytes) -> bytes:
    return _encoded(hmac.digest(key, payload, "sha256")[:_MAC_BYTES])


def _encoded(packed: bytes) -> bytes:
    return b2a_base64(packed, newline=False).translate(_URL_SAFE).rstrip(b"=")
