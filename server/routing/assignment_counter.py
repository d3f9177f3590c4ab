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

    __slots__ = ("by_weight", "salt", "units")

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.units: set[int] = set()
        self.by_weight: dict[int, list[int]] = {}


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
            mark, unit_marks = hash(unit), tally.units
            if mark in unit_marks or len(unit_marks) >= MOST_UNITS:
                return
            unit_marks.add(mark)
        shares = tally.by_weight.get(assignment.weight)
        if shares is None:
            shares = tally.by_weight[assignment.weight] = [0, 0]
        shares[0] += 1
        shares[1] += assignment.second

    def by_rollout(self) -> dict[str, tuple[AssignmentCount, ...]]:
        """As the control process is told of them."""
        return {
            rollout: tuple(
                AssignmentCount(tally.salt, weight, units, second)
                for weight, (units, second) in tally.by_weight.items()
            )
            for rollout, tally in self._tallies.items()
        }
