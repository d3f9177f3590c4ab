"""The gate at front ends: who asks, whether they may, and whether they ask too often.

One per gateway, on the event loop's thread. Front ends ask before they read a body; what tokens
there are comes with the desired state (`control.desired.TokenGrant`), and no request waits for it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from control.access.scopes import Action, allows_any, why_not
from control.desired import TokenGrant
from server.access.credentials import token_in
from server.access.token_holder import AuthorizationResult, PermissionHolder, TokenHolder, holder_of
from server.errors import Forbidden, RateLimited, ServingError, Unauthenticated

MISSING = "a token is needed: send the header 'Authorization: Bearer TOKEN'"
UNKNOWN = "this token is unknown, revoked or expired"

MOST_SHOWN, LONGEST_SHOWN = 1024, 1024

_Clock = Callable[[], float]


class Authorizer:
    """Knows the tokens. `required`: nobody passes without one; otherwise whoever shows none, or
    an unknown one, is anybody, and only a known one is held to its scopes and its rate.

    `watches`: whether there is anything to look at; while not, front ends need not ask.
    """

    def __init__(
        self, required: bool = False, wall: _Clock = time.time, monotonic: _Clock = time.monotonic
    ) -> None:
        self.required = required
        self.watches = required
        self._wall = wall
        self._monotonic = monotonic
        self._holders: dict[bytes, TokenHolder] = {}
        self._shown: dict[bytes | str | None, TokenHolder] = {}
        """Headers that showed a known token, lest each is hashed: 0.3 µs instead of 1.3."""

    def use(self, grants: Sequence[TokenGrant]) -> None:
        """Replace all that is known; what a token has used of its rate stays used."""
        before = {holder.grant.digest: holder for holder in self._holders.values()}
        found = (holder_of(grant, before.get(grant.digest)) for grant in grants)
        self._holders = {holder.digest: holder for holder in found if holder is not None}
        self._shown.clear()
        self.watches = self.required or bool(self._holders)

    def judge(
        self, authorization: bytes | str | None, action: Action, name: str = ""
    ) -> AuthorizationResult:
        """The whole decision about a request; it counts against the token's rate."""
        holder = None
        try:
            holder = self.recognise(authorization)
            if holder is None:
                return _ANYBODY
            if holder.rate_per_s:
                self.charge(holder)
            if not holder.may(action, name):
                self.authorise(holder, action, name)
        except ServingError as error:
            # It outlives this turn, and its frames would keep the connection's earlier requests.
            refusal = error.with_traceback(None)
            return AuthorizationResult(None if holder is None else holder.principal, refusal)
        return holder.welcome

    def recognise(self, authorization: bytes | str | None) -> TokenHolder | None:
        """Who shows this header; None for anybody. Raises Unauthenticated."""
        holder = self._shown.get(authorization) or self._look_up(authorization)
        if holder is not None:
            return self._unexpired(holder)
        if self.required:
            raise Unauthenticated(UNKNOWN if token_in(authorization) else MISSING)
        return None

    def admit(self, authorization: bytes | str | None) -> TokenHolder | None:
        """Who makes this request, which counts against their rate; None for anybody.

        Raises Unauthenticated, RateLimited.
        """
        holder = self.recognise(authorization)
        self.charge(holder)
        return holder

    def readmit(self, holder: TokenHolder) -> TokenHolder:
        """Who makes one more request on a call whose head showed `holder`'s token, as it is now.

        Raises Unauthenticated, RateLimited.
        """
        now = self._holders.get(holder.digest)
        if now is None:
            raise Unauthenticated("this token was revoked or has expired")
        self.charge(self._unexpired(now))
        return now

    def charge(self, holder: TokenHolder | None) -> None:
        """Count one request. Raises RateLimited."""
        if holder is None or not holder.rate_per_s:
            return
        rate = holder.rate_per_s
        wait_s = holder.bucket.take(rate, holder.burst, self._monotonic())
        if wait_s:
            raise RateLimited(
                f"this token may send {rate:g} requests a second; retry in {wait_s:.3g} s", wait_s
            )

    def authorise(self, holder: PermissionHolder | None, action: Action, name: str = "") -> None:
        """Raises Forbidden. `name`: see `public_name`."""
        if holder is not None and not holder.may(action, name):
            raise Forbidden(why_not(holder.principal, action, name))

    def authorise_any(self, holder: TokenHolder, action: Action) -> None:
        """Raises Forbidden for who may do this to nothing, whatever its name is."""
        if not allows_any(holder.principal, action):
            raise Forbidden(why_not(holder.principal, action, "*"))

    def _look_up(self, authorization: bytes | str | None) -> TokenHolder | None:
        token = token_in(authorization)
        holder = self._holders.get(sha256(token).digest()) if token else None
        if holder is not None and authorization and len(authorization) <= LONGEST_SHOWN:
            if len(self._shown) >= MOST_SHOWN:
                self._shown.clear()
            self._shown[authorization] = holder
        return holder

    def _unexpired(self, holder: TokenHolder) -> TokenHolder:
        if holder.expires and holder.expires <= self._wall():
            raise Unauthenticated("this token has expired; its user can create a new one")
        return holder


def public_name(name: str, aliases: Mapping[str, Any]) -> str:
    """The model that permission is asked for: of MODEL@ALIAS, where there is such a model, MODEL.

    `aliases`: model → whatever there is of aliases of it. Reads a name as `Lookup.unaliased`
    does, so that nobody gets by "digits@x" at a model whose own name that is.
    """
    if "@" not in name:
        return name
    model = name.rpartition("@")[0]
    return model if aliases.get(model) else name


_ANYBODY = AuthorizationResult()
