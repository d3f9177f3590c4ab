"""Short-lived tokens for one transfer of one object, so that links need no password. Pure."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Literal

import orjson

from repository.lfs.errors import BadToken

Operation = Literal["upload", "download", "verify"]
LIFETIME_S = 3600
LEAST_KEY_BYTES = 32
_LONGEST = 1024
_PURPOSE = b"modelyard lfs transfer 1\0"


@dataclass(frozen=True, slots=True)
class LfsTokenScope:
    """All that a token allows."""

    operation: Operation
    repository: str
    oid: str
    size_bytes: int


def sign(key: bytes, scope: LfsTokenScope, now: float, lifetime_s: int = LIFETIME_S) -> str:
    """A token for `scope`, good until `now` (Unix time) plus `lifetime_s`; fit for a header."""
    fields = [scope.operation, scope.repository, scope.oid, scope.size_bytes, int(now) + lifetime_s]
    body = orjson.dumps(fields)
    return f"{_text(body)}.{_text(_mac(key, body))}"


def check(
    key: bytes, token: str, operation: Operation, repository: str, oid: str, now: float
) -> LfsTokenScope:
    """What `token` allows, if that is this operation on this object at `now` (Unix time).

    Raises `BadToken`, which says nothing about the content of a forged one.
    """
    body = _authentic(key, token)
    found, for_repository, for_oid, size_bytes, expires_at = orjson.loads(body)
    if (found, for_repository, for_oid) != (operation, repository, oid):
        raise BadToken(f"this token is not for {operation} of object {oid} in '{repository}'")
    if now >= expires_at:
        raise BadToken(f"this token expired {now - expires_at:.0f} s ago; ask for a new batch")
    return LfsTokenScope(operation, repository, oid, size_bytes)


def _authentic(key: bytes, token: str) -> bytes:
    body_text, dot, mac_text = token.partition(".")
    try:
        if len(token) > _LONGEST or not dot:
            raise ValueError
        body, mac = _bytes(body_text), _bytes(mac_text)
    except (ValueError, NotBase64) as error:
        raise BadToken("this is not a token of this server") from error
    if not hmac.compare_digest(mac, _mac(key, body)):
        raise BadToken("this is not a token of this server")
    return body


def _mac(key: bytes, body: bytes) -> bytes:
    if len(key) < LEAST_KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes is too short; at least {LEAST_KEY_BYTES} do")
    return hmac.digest(key, _PURPOSE + body, "sha256")


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
