"""The metrics of drift, in Prometheus' text format."""

import math

from control.drift.points import DriftScores, FeatureDrift, VersionDriftScores
from server.metrics.drift import OF_DRIFT, drift_text

FOUND = DriftScores(
    (
        VersionDriftScores(
            "digits",
            2,
            "drifted",
            (
                FeatureDrift('input x"[0]', 0.5, 0.25, True),
                FeatureDrift("label y", 0.01, math.nan, False),
                FeatureDrift("input new", math.nan, math.nan, False),
            ),
        ),
    )
)


def test_each_feature_has_its_distances_and_whether_it_drifted() -> None:
    lines = drift_text(FOUND).decode().splitlines()
    label = 'model="digits",version="2",feature="input x\\"[0]"'
    assert f"modelyard_drift_psi{{{label}}} 0.5" in lines
    assert f"modelyard_drift_ks{{{label}}} 0.25" in lines
    assert f"modelyard_drift_detected{{{label}}} 1" in lines
    assert 'modelyard_drift_state{model="digits",version="2",state="drifted"} 1' in lines


def test_what_is_no_number_has_no_series() -> None:
    text = drift_text(FOUND).decode()
    assert "nan" not in text
    assert 'feature="input new"' not in text
    assert 'modelyard_drift_ks{model="digits",version="2",feature="label y"' not in text


def test_without_watched_models_there_are_only_heads() -> None:
    lines = drift_text(DriftScores(())).decode().splitlines()
    assert len(lines) == 2 * len(OF_DRIFT)
    assert all(line.startswith("#") for line in lines)
