"""What gateways tell of their routes' arms, and what that means to the rollouts. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from control.rollouts.arms import ArmTotals, RolloutTotals
from control.rollouts.assignment_counts import AssignmentCount
from control.rollouts.counts import GatewayReport
from control.rollouts.route_weights import CANDIDATE

MOST_ROLLOUTS = 1_024
"""Remembered of one gateway; the one that has been silent longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm's outcomes since the gateway began. `copies`: of mirrored requests; `rollout` is ""
    for a route that none moves; `in_flight` is as of now, as is `resident_bytes`, of the largest
    worker."""

    route: str
    rollout: str
    arm: str
    model: str
    version: int
    copies: bool
    in_flight: int
    deaths: int
    resident_bytes: int
    outcomes: ArmTotals = field(compare=False)


@dataclass(frozen=True, slots=True)
class ArmReports:
    """What a gateway has to tell; `boot` is new with each start of it. An arm that is not mentioned
    is as it was. `lots`: how rollouts shared units out, of all of them; None when it does not say.
    """

    server: str
    boot: str
    arms: tuple[ArmReport, ...]
    lots: Mapping[str, tuple[AssignmentCount, ...]] | None = None


def windows_of(server: str, frame: Mapping[str, Any]) -> ArmReports:
    """Raises KeyError, TypeError, ValueError for a frame that is none."""
    arms = tuple(
        ArmReport(
            str(route),
            str(rollout),
            str(arm),
            str(model),
            int(version),
            bool(copies),
            int(in_flight),
            int(deaths),
            int(resident),
            ArmTotals.from_list(outcomes),
        )
        for route, rollout, arm, model, version, copies, in_flight, deaths, resident, outcomes in (
            frame["rows"]
        )
    )
    return ArmReports(server, str(frame["boot"]), arms, _lots(frame["lots"]))


def _lots(rows: Iterable[Any] | None) -> Mapping[str, tuple[AssignmentCount, ...]] | None:
    if rows is None:
        return None
    found: dict[str, tuple[AssignmentCount, ...]] = {}
    for rollout, salt, weight, units, second in rows:
        lot = AssignmentCount(str(salt), int(weight), int(units), int(second))
        found[str(rollout)] = (*found.get(str(rollout), ()), lot)
    return found


class LatestArmReports:
    """The latest of every arm that a rollout moves, of one gateway process: who asks for a rollout
    needs all of its arms at once."""

    def __init__(self) -> None:
        self._boot = ""
        self._rollouts: OrderedDict[str, dict[tuple[str, str, int, bool], ArmReport]] = (
            OrderedDict()
        )
        self._lots: Mapping[str, tuple[AssignmentCount, ...]] = {}

    def heard(self, told: ArmReports) -> dict[str, GatewayReport]:
        """The reports of those rollouts that the news is about, by rollout."""
        if told.boot != self._boot:
            self._boot = told.boot
            self._rollouts.clear()
            self._lots = {}
        if told.lots is not None:
            self._lots = told.lots
        news = [one for one in told.arms if one.rollout]
        for one in news:
            arms = self._rollouts.setdefault(one.rollout, {})
            arms[one.arm, one.model, one.version, one.copies] = one
            self._rollouts.move_to_end(one.rollout)
        while len(self._rollouts) > MOST_ROLLOUTS:
            self._rollouts.popitem(last=False)
        changed = dict.fromkeys(one.rollout for one in news)
        return {
            rollout: report_of(self._rollouts[rollout].values(), self._lots.get(rollout, ()))
            for rollout in changed
            if rollout in self._rollouts
        }


def report_of(arms: Iterable[ArmReport], lots: tuple[AssignmentCount, ...] = ()) -> GatewayReport:
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
        RolloutTotals(control, candidate, mirrored), crashes, resident, in_flight, lots
    )
