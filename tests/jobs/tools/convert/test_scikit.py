"""Estimators of scikit-learn whose second output is no probability."""

from pathlib import Path
from typing import Any

import pytest
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import RidgeClassifier, SGDClassifier
from sklearn.svm import SVC, LinearSVC

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.scikit import open_source
from jobs.tools.equality import by_output, compare_with
from jobs.tools.result.config import read_config
from support.convert_sources import scikit_source, table

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("estimator", "data"),
    [
        (SVC(), "digits"),
        (LinearSVC(), "digits"),
        (SGDClassifier(random_state=0), "cancer"),
        (SVC(), "cancer"),
        (LinearSVC(), "cancer"),
        (RidgeClassifier(), "cancer"),
        (IsolationForest(n_estimators=10, random_state=0), "cancer"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_decision_functions_are_compared(estimator: Any, data: str, tmp_path: Path) -> None:
    folder = scikit_source(tmp_path / "source", estimator, data)
    spec = ConvertSpec(model="m", version=1, trusted=True)
    source = open_source(folder / "model.joblib", read_config(folder), spec)
    written = tmp_path / "result"
    written.mkdir()
    source.write(written)
    rows = {source.inputs[0].name: table(data)[0][:100]}
    checked = compare_with([source.run(rows)], source.open_result(written), [("data", rows)], 1e-4)
    assert [one.beyond for one in by_output(checked)] == [0, 0]
