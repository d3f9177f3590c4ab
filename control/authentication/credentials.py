"""What a request brings to say who it is from; nobody has looked whether it is true yet. Pure."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from control.access.tokens import PREFIX
from control.authentication.origins import SAFE
from control.http_errors import CredentialsRequired, CrossOriginWrite

COOKIE = "modelyard_session"
CSRF = "x-modelyard-csrf"

HOW = "give a token (Authorization: Bearer myd_…), or user and password (Basic)"


@dataclass(frozen=True, slots=True)
class BearerToken:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Password:
    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Cookie:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnixPeer:
    """The user at the other end of a Unix socket."""

    uid: int


Credentials = BearerToken | Password | Cookie | UnixPeer


def read_credentials(
    headers: Mapping[str, str], cookies: Mapping[str, str], peer_uid: int | None
) -> Credentials:
    """What the request brings; an Authorization header counts before all else.

    Raises CredentialsRequired when it brings nothing, or nothing that can be read.
    """
    header = headers.get("authorization")
    if header is not None:
        return _authorization(header)
    if peer_uid is not None:
        return UnixPeer(peer_uid)
    if cookies.get(COOKIE):
        return Cookie(cookies[COOKIE])
    raise CredentialsRequired(f"not authenticated: {HOW}")


def check_csrf(method: str, headers: Mapping[str, str]) -> None:
    """A browser sends its cookie whoever's page asks; only ours can add this header, and says
    its Origin, which `hosts.check_origin` has looked at. Raises CrossOriginWrite."""
    if method in SAFE:
        return
    if "origin" not in headers or not headers.get(CSRF):
        raise CrossOriginWrite(
            "with a session cookie a change needs the headers Origin and X-Modelyard-CSRF: 1"
        )


def _authorization(header: str) -> Credentials:
    scheme, _, rest = header.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return BearerToken(rest)
    if scheme.lower() == "basic":
        return _basic(rest)
    raise CredentialsRequired(f"the Authorization header cannot be read; {HOW}")


def _basic(packed: str) -> Credentials:
    """A token as the password counts as that token, whatever the name."""
    try:
        name, colon, text = base64.b64decode(packed, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise CredentialsRequired(f"the Authorization header cannot be read; {HOW}")
    return BearerToken(text) if text.startswith(PREFIX) else Password(name, text)
