"""What gateways tell of their routes' arms, and what that means to the rollouts. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from control.gateways.messages import ArmReport, ArmReports
from control.rollouts.arms import ArmTotals, RolloutTotals
from control.rollouts.assignment_counts import AssignmentCount
from control.rollouts.counts import GatewayReport
from control.rollouts.route_weights import CANDIDATE

MOST_ROLLOUTS = 1_024
"""Remembered of one gateway; the one that has been silent longest is forgotten first."""


class LatestArmReports:
    """The latest of every arm that a rollout moves, of one gateway process: who asks for a rollout
    needs all of its arms at once."""

    def __init__(self) -> None:
        self._boot = ""
        self._rollouts: OrderedDict[str, dict[tuple[str, str, int, bool], ArmReport]] = (
            OrderedDict()
        )
        self._assignments: Mapping[str, tuple[AssignmentCount, ...]] = {}

    def update(self, reports: ArmReports) -> dict[str, GatewayReport]:
        """The reports of those rollouts that the news is about, by rollout."""
        if reports.boot != self._boot:
            self._boot = reports.boot
            self._rollouts.clear()
            self._assignments = {}
        if reports.assignments is not None:
            self._assignments = reports.assignments
        news = [one for one in reports.arms if one.rollout]
        for one in news:
            arms = self._rollouts.setdefault(one.rollout, {})
            arms[one.arm, one.model, one.version, one.copies] = one
            self._rollouts.move_to_end(one.rollout)
        while len(self._rollouts) > MOST_ROLLOUTS:
            self._rollouts.popitem(last=False)
        changed = dict.fromkeys(one.rollout for one in news)
        return {
            rollout: report_of(self._rollouts[rollout].values(), self._assignments.get(rollout, ()))
            for rollout in changed
            if rollout in self._rollouts
        }


def report_of(
    arms: Iterable[ArmReport], assignments: tuple[AssignmentCount, ...] = ()
) -> GatewayReport:
    """Of one rollout's arms. The candidate's workers are told of with each of its rows."""
    control, candidate, mirrored = ArmTotals(), ArmTotals(), ArmTotals()
    in_flight = crashes = resident = 0
    for one in arms:
        if one.arm != CANDIDATE:
            control = control + one.outcomes
            continue
        in_flight += one.in_flight
        crashes, resident = max(crashes, one.deaths), max(resident, one.resident_bytes)
        if one.copies:
            mirrored = mirrored + one.outcomes
        else:
            candidate = candidate + one.outcomes
    return GatewayReport(
        RolloutTotals(control, candidate, mirrored), crashes, resident, in_flight, assignments
    )
