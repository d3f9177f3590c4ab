"""Who makes a request: the only place where credentials become a principal."""

import os
import pwd
from dataclasses import dataclass

from anyio import to_thread
from sqlalchemy.orm import Session
from starlette.requests import Request

from control.access.peer import PEER_UID
from control.access.rate_limits import network_of, whole_seconds
from control.access.scopes import Principal, Role
from control.access.sessions import principal_of_session
from control.access.tokens import digest_of, get_token, principal_of
from control.access.users import check_password, has_outdated_password, refresh_password
from control.authentication.credentials import (
    HOW,
    BearerToken,
    Cookie,
    Password,
    UnixPeer,
    check_csrf,
    read_credentials,
)
from control.errors import TooMany
from control.http_errors import CredentialsRequired
from control.services import ControlServices
from control.sql.database import Actor

ROOT_UID = 0
CLI_AGENT = "modelyard-cli/"

UNKNOWN_PER_S, UNKNOWN_BURST = 20.0, 100
"""Tokens not known to be good that one address may show."""

ANYBODY = Principal("anonymous", Role.VIEWER, ())
"""Who asks where nobody is asked who they are."""


@dataclass(frozen=True, slots=True)
class AuthenticatedPrincipal:
    """A principal, and `via` which way it came: "api", "cli" or "console"."""

    principal: Principal
    via: str


@dataclass(frozen=True, slots=True)
class _TokenPrincipal:
    """A token's principal and its limit: 0 for none."""

    principal: Principal
    rate_per_s: float
    burst: int


async def identify(
    services: ControlServices, request: Request, again: bool = False
) -> AuthenticatedPrincipal:
    """`again`: the same request is looked at once more, which counts against no limit.

    Raises CredentialsRequired, CrossSite, TooMany, DatabaseGone.
    """
    peer = getattr(request.state, PEER_UID, None) if is_local(request) else None
    found = read_credentials(request.headers, request.cookies, peer)
    via = "cli" if request.headers.get("user-agent", "").startswith(CLI_AGENT) else "api"
    match found:
        case BearerToken():
            return AuthenticatedPrincipal(
                await _by_token(services, request, found.text, again), via
            )
        case Password():
            return AuthenticatedPrincipal(
                await by_password(services, found, address_of(request)), via
            )
        case Cookie():
            check_csrf(request.method, request.headers)
            return AuthenticatedPrincipal(await by_cookie(services, found.text), "console")
        case UnixPeer():
            return AuthenticatedPrincipal(_by_peer(found.uid), via)


def is_local(request: Request) -> bool:
    """Whether it came over a Unix socket."""
    server = request.scope.get("server")
    return server is not None and server[1] is None


def address_of(request: Request) -> str:
    """The client's address, as `control.authentication.forwarded` has it; "" over a Unix socket."""
    return "" if request.client is None or is_local(request) else request.client.host


async def _by_token(
    services: ControlServices, request: Request, text: str, again: bool
) -> Principal:
    """One that was not good lately costs a look at the database: an address has so many a second.
    Nobody guesses 40 characters, so that is all there is to guard."""
    digest, address = digest_of(text), address_of(request)
    if address and digest not in services.good_tokens:
        key, now = f"token:{network_of(address)}", services.monotonic()
        wait_s = services.rates.take(key, UNKNOWN_PER_S, UNKNOWN_BURST, now)
        if wait_s:
            raise TooMany(
                f"more than {UNKNOWN_PER_S:g} unknown tokens a second from this address; "
                f"try again in {whole_seconds(wait_s)}",
                wait_s,
            )

    def look() -> _TokenPrincipal | None:
        with services.database.reading() as session:
            return _holder(session, text, services)

    holder = await to_thread.run_sync(look, limiter=services.threads)
    services.good_tokens.note(digest, holder is not None)
    if holder is None:
        raise CredentialsRequired("this token is unknown, revoked or expired")
    if holder.rate_per_s and not again:
        key, now = holder.principal.id, services.monotonic()
        wait_s = services.rates.take(key, holder.rate_per_s, holder.burst, now)
        if wait_s:
            raise TooMany(
                f"this token may send {holder.rate_per_s:g} requests a second; "
                f"try again in {whole_seconds(wait_s)}",
                wait_s,
            )
    services.uses.note(holder.principal.token_id, "")
    return holder.principal


def _holder(session: Session, text: str, services: ControlServices) -> _TokenPrincipal | None:
    principal = principal_of(session, text, services.now())
    if principal is None:
        return None
    view = get_token(session, principal.token_id)
    return _TokenPrincipal(principal, view.rate_per_s or 0.0, view.burst or 1)


async def by_password(services: ControlServices, given: Password, address: str) -> Principal:
    """Raises CredentialsRequired, TooMany, DatabaseGone.

    Each try counts as a failure until it has succeeded, so that many at once count as many."""
    now = services.monotonic()
    wait_s = services.failures.wait(given.name, address, now)
    if wait_s:
        raise TooMany(f"too many wrong passwords; try again in {whole_seconds(wait_s)}", wait_s)
    services.failures.failed(given.name, address, now)

    def look() -> Principal | None:
        with services.database.reading() as session:
            principal = check_password(session, given.name, given.text)
            outdated = principal is not None and has_outdated_password(session, given.name)
        if outdated:
            with services.database.change(Actor(f"user:{given.name}", "api", address)) as tx:
                refresh_password(tx, given.name, given.text)
        return principal

    principal = await to_thread.run_sync(look, limiter=services.password_threads)
    if principal is None:
        raise CredentialsRequired(f"user or password is wrong; {HOW}")
    services.failures.succeeded(given.name, address)
    return principal


async def by_cookie(services: ControlServices, text: str) -> Principal:
    """Raises CredentialsRequired, DatabaseGone."""

    def look() -> Principal | None:
        with services.database.reading() as session:
            return principal_of_session(session, text, services.now())

    principal = await to_thread.run_sync(look, limiter=services.threads)
    if principal is None:
        raise CredentialsRequired("this session is over; log in again")
    services.uses.note("", text)
    return principal


def _by_peer(uid: int) -> Principal:
    """Whoever runs as we do, or as root, could read the database anyway."""
    if uid not in (os.geteuid(), ROOT_UID):
        raise CredentialsRequired("the socket is for the server's own user; give a token")
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Principal(f"local:{name}", Role.ADMIN)
