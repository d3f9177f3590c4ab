"""Roles, scopes and the one decision: may this principal do this to that? Pure.

Gateways and the control process ask the same function, so that no protocol, alias or route is a
way around it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from control.errors import Invalid


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Action(StrEnum):
    """What can be done; the resource each is about stands behind it."""

    INFER = "infer"  # a model's public name
    READ = "read"  # a model's public name, or "" for lists, statistics, metrics, events
    PULL = "pull"  # a git repository
    PUSH = "push"  # a git repository, and the ref
    OPERATE = "operate"  # whatever changes what is served: loads, aliases, deploys, routes
    AUDIT = "audit"  # reading who did what
    ADMIN = "admin"  # users, tokens of others, repositories, settings


ROLE_ACTIONS: dict[Role, frozenset[Action]] = {
    Role.VIEWER: frozenset({Action.INFER, Action.READ, Action.PULL}),
    Role.OPERATOR: frozenset(set(Action) - {Action.ADMIN}),
    Role.ADMIN: frozenset(Action),
}

_SCOPE = re.compile(r"(?P<kind>[a-z]+)(?::(?P<rest>.*))?", re.DOTALL)
_FORMS = (
    "infer:MODEL, push:REPOSITORY:REF, priority:-N, read, operate or admin; "
    "MODEL and REF may hold *"
)
_REPOSITORY = re.compile(r"[a-z0-9*][a-z0-9._*-]{0,99}")
_PRIORITY = re.compile(r"-[1-9][0-9]{0,8}")
_GLOB = re.compile(r"[^\s,?\[\]]{1,255}")  # `*` is the only wildcard


@dataclass(frozen=True, slots=True)
class Scope:
    """One thing a token may do. `name`: a model or repository glob, or the most urgent priority of
    requests to language models; `ref`: a ref glob."""

    kind: str
    name: str = ""
    ref: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.kind, self.name, self.ref) if part)

    def covers(self, action: Action, name: str, ref: str) -> bool:
        match self.kind:
            case "admin":
                return True
            case "operate":
                return action not in (Action.ADMIN, Action.PUSH)
            case "read":
                return action in (Action.READ, Action.PULL)
            case "infer":
                return action in (Action.INFER, Action.READ) and fnmatchcase(name, self.name)
            case "push":
                return fnmatchcase(name, self.name) and (
                    action == Action.PULL or (action == Action.PUSH and fnmatchcase(ref, self.ref))
                )
        return False


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `scopes` is None for a person who logged in: the role alone decides then.

    `id` is "user:NAME", "user:NAME/token:ID", "local:NAME" (same machine, same user) or
    "anonymous".
    """

    id: str
    role: Role
    scopes: tuple[Scope, ...] | None = None
    token_id: str = ""


def id_of(principal: Principal | None) -> str:
    """The principal's id, "" for nobody known."""
    return "" if principal is None else principal.id


def allows(principal: Principal, action: Action, name: str = "", ref: str = "") -> bool:
    """The decision. `name` is what the action is about: the public name a client wrote, without
    "@alias", or a repository; `ref` a full ref name, e.g. "refs/heads/main"."""
    if action not in ROLE_ACTIONS[principal.role]:
        return False
    if principal.scopes is None:
        return True
    return any(scope.covers(action, name, ref) for scope in principal.scopes)


def allows_any(principal: Principal, action: Action) -> bool:
    """Whether there may be a name for which `allows` says yes; action INFER, READ or PULL."""
    if action not in ROLE_ACTIONS[principal.role]:
        return False
    if principal.scopes is None:
        return True
    return any(scope.covers(action, scope.name, "") for scope in principal.scopes)


ANY_URGENCY = -(1 << 31)


def most_urgent(principal: Principal | None) -> int:
    """The smallest priority that requests to language models may ask for; 0, which everybody has,
    unless the principal may operate, or its token has a scope for more."""
    if principal is None or Action.OPERATE not in ROLE_ACTIONS[principal.role]:
        return 0
    if principal.scopes is None or any(
        one.kind in ("operate", "admin") for one in principal.scopes
    ):
        return ANY_URGENCY
    return min((int(one.name) for one in principal.scopes if one.kind == "priority"), default=0)


def why_not(principal: Principal, action: Action, name: str = "", ref: str = "") -> str:
    """Why `allows` said no, and what would be needed; never mentions a secret."""
    what = {
        Action.INFER: f"infer with '{name}'",
        Action.READ: f"read about '{name}'" if name else "read about all models",
        Action.PULL: f"read the repository '{name}'",
        Action.PUSH: f"push to {ref or 'any ref'} of '{name}'",
        Action.OPERATE: "change what is served",
        Action.AUDIT: "read the audit",
        Action.ADMIN: "administer this server",
    }[action]
    if action not in ROLE_ACTIONS[principal.role]:
        enough = next(role for role in Role if action in ROLE_ACTIONS[role])
        return f"{principal.id} may not {what}: that takes the role {enough}, not {principal.role}"
    needed = {
        Action.INFER: f"infer:{name}",
        Action.READ: "read",
        Action.PULL: "read",
        Action.PUSH: f"push:{name}:{ref or '*'}",
        Action.OPERATE: "operate",
        Action.AUDIT: "operate",
        Action.ADMIN: "admin",
    }[action]
    return f"this token may not {what}: it lacks the scope {needed}"


def parse_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Raises Invalid naming the first that is none, or when there is none at all."""
    scopes = tuple(dict.fromkeys(parse_scope(text) for text in texts))
    if not scopes:
        raise Invalid(f"a token needs a scope: {_FORMS}", "scopes")
    return scopes


def parse_scope(text: str) -> Scope:
    """ "push:vision:refs/heads/*" → Scope. Raises Invalid."""
    found = _SCOPE.fullmatch(text)
    kind, rest = (found["kind"], found["rest"]) if found else ("", None)
    if not text.isprintable():
        kind = ""  # what is shown on terminals cannot steer them
    if kind in ("read", "operate", "admin") and rest is None:
        return Scope(kind)
    if kind == "infer" and rest and _GLOB.fullmatch(rest):
        return Scope(kind, rest)
    if kind == "priority" and rest and _PRIORITY.fullmatch(rest):
        return Scope(kind, rest)
    if kind == "push" and rest:
        name, colon, ref = rest.partition(":")
        ref = _full_ref(ref) if colon else "*"  # "push:m:" is an empty variable, not every ref
        if _REPOSITORY.fullmatch(name) and _GLOB.fullmatch(ref):
            return Scope(kind, name, ref)
    raise Invalid(f"{text!r:.100} is not a scope; give {_FORMS}", "scopes")


def _full_ref(ref: str) -> str:
    return ref if ref in ("", "*") or ref.startswith("refs/") else f"refs/heads/{ref}"


def within_role(role: Role, scopes: Iterable[Scope]) -> None:
    """Raises Invalid when a token of a user with `role` could never use one of `scopes`."""
    needs = {
        "infer": Action.INFER,
        "read": Action.READ,
        "push": Action.PUSH,
        "priority": Action.OPERATE,
        "operate": Action.OPERATE,
        "admin": Action.ADMIN,
    }
    for scope in scopes:
        if needs[scope.kind] not in ROLE_ACTIONS[role]:
            raise Invalid(f"the scope {scope} is more than the role {role} may do", "scopes")
