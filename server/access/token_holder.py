"""A token as a gateway knows it: whose it is, until when, how often, and what it may ask for."""

import logging
from typing import NamedTuple, Protocol

from control.access.rate_limits import RateBucket
from control.access.scopes import Action, Principal, Role, allows, most_urgent, parse_scopes
from control.desired import TokenGrant
from control.errors import Invalid
from server.errors import ServingError

MOST_NAMES, LONGEST_NAME = 256, 256
"""Decisions remembered for one token; names are the client's, so both are bounded."""

_log = logging.getLogger(__name__)


class AuthorizationResult(NamedTuple):
    """Who asks, None for anybody, and why they are refused, None if they are not."""

    principal: Principal | None = None
    refusal: ServingError | None = None


class PermissionHolder(Protocol):
    """Whoever may be asked whether they may."""

    @property
    def principal(self) -> Principal: ...

    def may(self, action: Action, name: str) -> bool: ...


class PrincipalPermission:
    """What a principal may do; for who has no token of theirs at hand."""

    __slots__ = ("principal",)

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def may(self, action: Action, name: str) -> bool:
        return allows(self.principal, action, name)


class TokenHolder:
    """Who holds one token. `bucket` stays the same when the grant changes."""

    __slots__ = (
        "_infers",
        "bucket",
        "burst",
        "digest",
        "expires",
        "grant",
        "most_urgent",
        "principal",
        "rate_per_s",
        "welcome",
    )

    def __init__(self, grant: TokenGrant, bucket: RateBucket) -> None:
        """Raises Invalid or ValueError for a grant that cannot be read."""
        self.grant = grant
        self.digest = bytes.fromhex(grant.digest)
        self.principal = Principal(
            grant.principal, Role(grant.role), parse_scopes(grant.scopes), grant.token_id
        )
        self.most_urgent = most_urgent(self.principal)
        self.welcome = AuthorizationResult(self.principal)
        self.expires = grant.expires
        self.rate_per_s = grant.rate_per_s
        self.burst = max(grant.burst, 1)
        self.bucket = bucket
        self._infers: set[str] = set()

    def may(self, action: Action, name: str) -> bool:
        """`allows`, with the models inferred with before remembered."""
        if action is not Action.INFER:
            return allows(self.principal, action, name)
        if name in self._infers:
            return True
        allowed = allows(self.principal, action, name)
        if allowed and len(name) <= LONGEST_NAME:
            if len(self._infers) >= MOST_NAMES:
                self._infers.clear()
            self._infers.add(name)
        return allowed


def holder_of(grant: TokenGrant, before: TokenHolder | None) -> TokenHolder | None:
    """As it was `before` where nothing changed; None, and told, for a grant of no known form."""
    if before is not None and before.grant == grant:
        return before
    try:
        return TokenHolder(grant, RateBucket() if before is None else before.bucket)
    except (Invalid, ValueError) as error:
        _log.warning("the token %s cannot be used here: %s", grant.token_id, error)
        return None
