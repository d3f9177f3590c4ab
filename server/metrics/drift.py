"""The metrics of drift: what the control process found of watched models, feature by feature.

Bounded: 16 models, 8 versions of each, 64 features of a version.
"""

import math
from collections.abc import Callable, Iterator

from control.drift.points import DriftScores
from server.metrics.metric_family import MetricFamily, escaped, head

_PSI = MetricFamily(
    "modelyard_drift_psi",
    "gauge",
    "Population stability index of a feature against its reference, less what chance makes of it",
)
_KS = MetricFamily(
    "modelyard_drift_ks",
    "gauge",
    "Kolmogorov-Smirnov distance of a numeric feature from its reference, 0.0 to 1.0",
)
_DRIFTED = MetricFamily(
    "modelyard_drift_detected",
    "gauge",
    "1 for a feature that has drifted by its limits and its corrected p-value, 0 otherwise",
)
_STATE = MetricFamily(
    "modelyard_drift_state",
    "gauge",
    "1 for the state that a watched version is in: no_reference, waiting, stable or drifted",
)
OF_DRIFT: tuple[MetricFamily, ...] = (_PSI, _KS, _DRIFTED, _STATE)


Scores = Callable[[], DriftScores]
"""What was found of drift last."""

_NOTHING = DriftScores(())


def unscored() -> DriftScores:
    """Where nobody says."""
    return _NOTHING


def drift_text(found: DriftScores) -> bytes:
    """These metrics in Prometheus' text format."""
    return "".join(f"{line}\n" for line in of_drift(found)).encode()


def of_drift(found: DriftScores) -> Iterator[str]:
    """The lines of these metrics; a feature that nothing can be said of has none."""
    features = [
        (
            f'model="{escaped(row.model)}",version="{row.version}",feature="{escaped(one.feature)}"',
            one,
        )
        for row in found.rows
        for one in row.features
    ]
    yield from head(_PSI)
    for label, one in features:
        if not math.isnan(one.psi):
            yield f"{_PSI.name}{{{label}}} {one.psi}"
    yield from head(_KS)
    for label, one in features:
        if not math.isnan(one.ks):
            yield f"{_KS.name}{{{label}}} {one.ks}"
    yield from head(_DRIFTED)
    for label, one in features:
        if not math.isnan(one.psi):
            yield f"{_DRIFTED.name}{{{label}}} {int(one.drifted)}"
    yield from head(_STATE)
    for row in found.rows:
        label = f'model="{escaped(row.model)}",version="{row.version}",state="{row.state}"'
        yield f"{_STATE.name}{{{label}}} 1"
