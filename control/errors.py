"""What can go wrong with desired state; `control.http_errors` knows the statuses.

ControlError
├── Invalid        what was asked for cannot be: names the field, the value and what is allowed
├── NotFound       there is no such thing
├── Conflict       it exists already, or is referred to
│   └── Stale      it was changed by somebody else meanwhile
├── NotAllowed     the principal may not do this: names the scope or role that would allow it
├── TooMany        a rate limit or a quota: says when to come back
├── LostLease      somebody else holds the lease now; what was begun must not be finished
└── DatabaseGone   the database does not answer: names it without its password
    ├── DatabaseDamaged  its file was removed, replaced or damaged; nothing is written any more
    └── DatabaseFull     the disk that it is on is full; the change was not made
"""

PROBLEM_HEADER = "X-Modelyard-Problem"
"""A header of every answer of the API while the database takes no changes: why, percent-encoded."""


class ControlError(Exception):
    """Base of everything `control` raises; the message is meant for the person who asked."""


class Invalid(ControlError):
    """What was asked for cannot be; `field` says which part, "" for the whole."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class NotFound(ControlError):
    """There is no such thing, or it is not the principal's to see."""


class Conflict(ControlError):
    """It exists already, is referred to, or has changed since it was read."""


class Stale(Conflict):
    """It has changed since it was read: the revision is not the expected one."""


class NotAllowed(ControlError):
    """The principal may not do this."""


class TooMany(ControlError):
    """Too much asked for; `retry_after_s` says when to come back."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LostLease(ControlError):
    """The lease went to another holder; the transition was not made."""


class DatabaseGone(ControlError):
    """The database does not answer."""


class DatabaseDamaged(DatabaseGone):
    """The file of the database is not what it was; what is committed to it would be lost."""


class DatabaseFull(DatabaseGone):
    """There is no room for the change, which was not made."""
