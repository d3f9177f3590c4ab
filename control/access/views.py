"""Users and tokens as the control API answers them. Pure."""

import msgspec

from control.access.scopes import Role
from control.clock import Moment


class UserView(msgspec.Struct, frozen=True):
    """A user as others may see one. Without a password a user has only tokens."""

    name: str
    role: Role
    has_password: bool
    created_at: Moment
    disabled_at: Moment | None
    revision: int


class TokenView(msgspec.Struct, frozen=True):
    """A token as its user may see it. `hint`: its first characters. None: never, or no limit."""

    id: str
    user: str
    name: str
    hint: str
    scopes: tuple[str, ...]
    rate_per_s: float | None
    burst: int | None
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class CreatedTokenView(msgspec.Struct, frozen=True):
    """The token and, this once, its text."""

    token: TokenView
    text: str


class MeView(msgspec.Struct, frozen=True):
    """The principal of the request; `scopes` is null for a person, whose role alone decides."""

    principal: str
    role: str
    scopes: list[str] | None


class InvitationView(msgspec.Struct, frozen=True):
    """A link that makes the first administrator's account, once, within a day."""

    url: str
