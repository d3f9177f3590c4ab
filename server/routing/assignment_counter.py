"""How units were shared out by chance, as told to the control process: it holds the counts against
the weight that was in force. Pure.

A unit counts once for each rollout, when the version that it met has accepted a request of it: one
that is only ever refused as the client's own error is missing, and so is one that is lost. What has
no unit counts request by request.
"""

from collections.abc import Collection

from control.rollouts.assignment_counts import AssignmentCount
from server.routing.table import ArmAssignment

MOST_UNITS = 50_000
"""Of one rollout; the ones seen after these are left out, whichever arm they met."""


class _RolloutTally:
    """One rollout's. `seen`: hashes of units."""

    __slots__ = ("met", "salt", "seen")

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.seen: set[int] = set()
        self.met: dict[int, list[int]] = {}


class AssignmentCounter:
    """One gateway's; on the loop's thread."""

    def __init__(self) -> None:
        self._tallies: dict[str, _RolloutTally] = {}

    def use(self, rollouts: Collection[str]) -> None:
        """These are under way from now on; the others are forgotten."""
        for rollout in self._tallies.keys() - set(rollouts):
            del self._tallies[rollout]

    def note(self, assignment: ArmAssignment, unit: str) -> None:
        """It has decided for a unit, or for a request alone."""
        tally = self._tallies.get(assignment.rollout)
        if tally is None or tally.salt != assignment.salt:
            tally = self._tallies[assignment.rollout] = _RolloutTally(assignment.salt)
        if unit:
            mark, seen = hash(unit), tally.seen
            if mark in seen or len(seen) >= MOST_UNITS:
                return
            seen.add(mark)
        met = tally.met.get(assignment.weight)
        if met is None:
            met = tally.met[assignment.weight] = [0, 0]
        met[0] += 1
        met[1] += assignment.second

    def by_rollout(self) -> dict[str, tuple[AssignmentCount, ...]]:
        """As the control process is told of them."""
        return {
            rollout: tuple(
                AssignmentCount(tally.salt, weight, units, second)
                for weight, (units, second) in tally.met.items()
            )
            for rollout, tally in self._tallies.items()
        }
