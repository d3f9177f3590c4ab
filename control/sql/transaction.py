"""One change of desired state: its rows, its event and its audit row, in one commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from control.errors import LostLease, Stale
from control.tables import Audit, Counter, Event, Lease

Facts = Mapping[str, Any]
"""JSON-able facts. Never a secret: what is here is shown to everybody who may read events."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a change: `principal` e.g. "user:ada" or "system:deployer", `via` which way
    ("api", "cli", "console", "git", "system"), `address` the peer's, "" where there is none."""

    principal: str
    via: str
    address: str = ""


SYSTEM = Actor("system", "system")


@dataclass(frozen=True, slots=True)
class Fence:
    """Proof of a lease: `number` is compared with the lease's row when the change commits."""

    lease: str
    number: int


@dataclass(slots=True)
class Transaction:
    """Made by `control.sql.database.Database.change`; `session` is SQLAlchemy's, commit is its
    maker's.

    Call `changed` once for every change; a transaction that changes rows without it is a bug that
    the test-suite looks for.
    """

    session: Session
    actor: Actor
    now: datetime
    fence: Fence | None = None
    desired: bool = False
    events: list[int] = field(default_factory=list)

    def alone(self) -> None:
        """Wait for the changes before this one: what is looked up from here on stays true until
        the commit. Take it before any other row lock, or two changes may wait for each other."""
        turn = select(Counter.value).where(Counter.name == "event").with_for_update()
        self.session.execute(turn)

    def changed(
        self, action: str, subject: str, before: Facts | None, after: Facts | None, **data: Any
    ) -> int:
        """Record the change as event and audit row; the event's id.

        `action` is the event's kind as well, e.g. "alias.moved"; `subject` e.g.
        "alias:digits@champion". `data` adds facts to the event alone.
        """
        number = self.happened(action, subject, before=before, after=after, **data)
        self.session.add(
            Audit(
                id=number,
                at=self.now,
                actor=self.actor.principal,
                via=self.actor.via,
                address=self.actor.address,
                action=action,
                subject=subject,
                before=None if before is None else dict(before),
                after=None if after is None else dict(after),
            )
        )
        return number

    def happened(self, kind: str, subject: str, **data: Any) -> int:
        """Record an event that nobody decided (progress, a load's end); its id."""
        number = self._next("event")
        row = Event(
            id=number,
            at=self.now,
            kind=kind,
            subject=subject,
            actor=self.actor.principal,
            data=data,
        )
        self.session.add(row)
        self.events.append(number)
        return number

    def desire(self) -> None:
        """Gateways are to be told: what they should do has changed."""
        self.desired = True

    def finish(self) -> None:
        """Before the commit: hold the fence against the lease, and number the desired state.

        Raises LostLease.
        """
        if self.fence is not None:
            self._check(self.fence)
        if self.desired:
            self._next("desired")

    def _check(self, fence: Fence) -> None:
        held = select(Lease.fence).where(Lease.name == fence.lease).with_for_update()
        if self.session.scalar(held) != fence.number:
            raise LostLease(f"the lease '{fence.lease}' has a newer holder than {fence.number}")

    def _next(self, name: str) -> int:
        """The counter's next value; its row stays locked until the commit: ids commit in order."""
        row = update(Counter).where(Counter.name == name).values(value=Counter.value + 1)
        number: int = self.session.scalars(row.returning(Counter.value)).one()
        return number


def expect_revision(found: int, expected: int | None, what: str) -> None:
    """Compare-and-set: raises Stale when `expected` is given and differs."""
    if expected is not None and expected != found:
        raise Stale(
            f"{what} has been changed meanwhile (revision {found}, you have {expected}); "
            "read it again and repeat the change"
        )
