"""From an Authorization header to the token in it. Pure."""

import binascii
from base64 import b64decode
from collections.abc import Iterable

LONGEST_BYTES = 512
"""Of a token, ours have 44; what is longer is not even hashed."""


def authorization_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The header, of names in lower case; the first if there are several, None if there is none."""
    for name, value in headers:
        if name == b"authorization":
            return value
    return None


def token_in(authorization: bytes | str | None) -> bytes:
    """The token of `Bearer TOKEN`, or the password of Basic; empty for none, and for no token."""
    if not authorization:
        return b""
    if isinstance(authorization, str):
        authorization = authorization.encode("latin-1", "replace")
    if authorization[:7] == b"Bearer ":
        token = authorization[7:].strip()
    else:
        token = _spelt_otherwise(authorization)
    return token if len(token) <= LONGEST_BYTES else b""


def _spelt_otherwise(authorization: bytes) -> bytes:
    scheme, _, rest = authorization.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return rest.strip()
        case b"basic":
            return _password_in(rest)
    return b""


def _password_in(encoded: bytes) -> bytes:
    try:
        return b64decode(encoded, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
