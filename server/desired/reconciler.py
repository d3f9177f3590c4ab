"""Bring desired state into force: tokens at once, routes and aliases as their targets get ready on
this server.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from control.desired import DesiredState, TokenGrant
from server.routing.effective import (
    EffectiveRoutes,
    PendingSubject,
    StateOf,
    effective,
    experiments_in_force,
    of_desired,
    with_pins,
)

Apply = Callable[[DesiredState], None]
Keep = Callable[[DesiredState, DesiredState | None], None]

_log = logging.getLogger(__name__)


class Reconciler:
    """One gateway's, on the loop's thread. `admit` gets the tokens that count from now on, `route`
    what requests are routed by, `load` what is to be kept loaded; `keep` what is desired, for a
    restart to begin with, and what is in force while it is something else, None when it is not."""

    def __init__(
        self,
        desired: DesiredState,
        in_force: DesiredState | None,
        state_of: StateOf,
        admit: Callable[[Sequence[TokenGrant]], None],
        route: Apply,
        load: Apply,
        keep: Keep,
    ) -> None:
        """`desired` and `in_force`: what `keep` was given last, by the process before this one."""
        self.desired = desired
        self._in_force = of_desired(in_force or desired)
        self._state_of = state_of
        self._admit = admit
        self._route = route
        self._load = load
        self._keep = keep

    @property
    def pending(self) -> tuple[PendingSubject, ...]:
        """What is not in force."""
        return self._in_force.pending

    def start(self) -> None:
        """Begin with what was kept."""
        self._reconcile(self.desired)

    def want(self, desired: DesiredState) -> None:
        """This is desired from now on; what is ready of it is in force when this returns."""
        if (desired.store, desired.revision) == (self.desired.store, self.desired.revision):
            return
        if desired.store == self.desired.store and desired.revision < self.desired.revision:
            _log.warning(
                "the control process offers revision %d after %d; a backup was restored, it seems",
                desired.revision,
                self.desired.revision,
            )
        self._reconcile(desired)

    def models_changed(self) -> None:
        """Versions have become ready, or could not be loaded."""
        if self._in_force.pending:
            now = effective(self.desired, self._in_force, self._state_of)
            if now != self._in_force:
                self._apply(self.desired, now)

    def _reconcile(self, desired: DesiredState) -> None:
        self._admit(desired.grants)
        self._apply(desired, effective(desired, self._in_force, self._state_of))

    def _apply(self, desired: DesiredState, now: EffectiveRoutes) -> None:
        _tell(self._in_force.pending, now.pending)
        self._in_force = now
        routed = experiments_in_force(desired, now)
        self._route(routed)
        self._load(with_pins(desired, now))
        self.desired = desired
        self._keep(desired, with_pins(routed, now) if now.pending else None)


def _tell(before: Iterable[PendingSubject], now: Iterable[PendingSubject]) -> None:
    earlier, still = set(before), {one.subject for one in now}
    for one in now:
        if one not in earlier:
            _log.log(logging.WARNING if one.failed else logging.INFO, "%s: %s", *one[:2])
    for subject in sorted({one.subject for one in earlier} - still):
        _log.info("%s: in force", subject)
