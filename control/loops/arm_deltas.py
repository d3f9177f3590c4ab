"""What arms have answered since gateways last told of it, for metrics that servers count. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from control.experiments.metrics import MetricKind, MetricSource
from control.experiments.records.feedback import ServerMeasurement
from control.experiments.service import ExperimentView
from control.gateways.messages import ArmReport, ArmReports
from control.rollouts.arms import ArmTotals, latency_since
from control.statistics.histogram import Histogram

_Key = tuple[str, str, str, str, int]


@dataclass(frozen=True, slots=True)
class ArmDelta:
    """What an arm of a route has answered."""

    route: str
    arm: str
    requests: int
    errors: int
    latencies: Histogram


class ArmDeltas:
    """Of every gateway. What one has counted before its first report is left out: it may have
    been told to an earlier process."""

    def __init__(self) -> None:
        self._boots: dict[str, str] = {}
        self._before: dict[str, dict[_Key, ArmTotals]] = {}

    def update(self, reports: ArmReports) -> list[ArmDelta]:
        """Copies do not count: nobody has seen their answers."""
        if self._boots.get(reports.server) != reports.boot:
            self._boots[reports.server], self._before[reports.server] = reports.boot, {}
        before, found = self._before[reports.server], []
        for one in reports.arms:
            key = (one.route, one.rollout, one.arm, one.model, one.version)
            if one.copies:
                continue
            if key in before and one.outcomes != before[key]:
                found.append(_since(one, before[key]))
            before[key] = one.outcomes
        return found


def measured_by(
    trials: Iterable[ExperimentView], rows: Iterable[ArmDelta]
) -> list[ServerMeasurement]:
    """A row for every metric of source "server" of the experiments on these routes."""
    by_route: Mapping[str, list[ExperimentView]] = _by_route(trials)
    return [
        _measured(trial.id, metric.name, metric.kind, row)
        for row in rows
        for trial in by_route.get(row.route, ())
        for metric in trial.terms.metrics
        if metric.source is MetricSource.SERVER
    ]


def _by_route(trials: Iterable[ExperimentView]) -> dict[str, list[ExperimentView]]:
    found: dict[str, list[ExperimentView]] = {}
    for trial in trials:
        found.setdefault(trial.route, []).append(trial)
    return found


def _measured(experiment: str, metric: str, kind: MetricKind, row: ArmDelta) -> ServerMeasurement:
    if kind is MetricKind.QUANTILE:
        return ServerMeasurement(experiment, metric, row.arm, latencies=row.latencies)
    return ServerMeasurement(experiment, metric, row.arm, row.requests, row.errors)


def _since(one: ArmReport, before: ArmTotals) -> ArmDelta:
    now = one.outcomes
    return ArmDelta(
        one.route,
        one.arm,
        now.counts.requests - before.counts.requests,
        now.counts.errors - before.counts.errors,
        latency_since(now.latency, before.latency),
    )
