"""A rollout on a whole server is rolled back because its labels are others, and only then."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.drift import send, write_model
from support.rollouts_yard import CALM, history, rollout
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

PLAN = {
    **CALM,
    "mirror": 0,
    "steps": "50",
    "hold": "1s",
    "min_sample": 40,
    "window": "1s",
    "label_drift": 0.1,
    "label_sample": 500,
}
OTHER, ALIKE = 2, 3
"""Versions: one that says "high" to five of six where the stable one does to half, and one that
differs by a thousandth."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Three versions, a route to the first, and a watch that counts labels."""
    with yard(tmp_path_factory.mktemp("labels"), drift_window_secs=1) as y:
        work = y.repository("scores")
        (work / "models").mkdir()
        write_model(work / "models", 0.0, 2.0, 0.001)
        y.commit(work, "three versions")
        y.push(work)
        y.wait_versions("score", 1, 2, 3)
        whole = [{"name": "stable", "model": "score", "version": 1, "weight": 100}]
        assert y.api("PUT", "/routes/score", {"arms": whole})[0] == 200
        y.cli("drift", "watch", "score", "--window", "10s", "--per-second", "1000")
        yield y


def ended(y: Yard, candidate: int) -> dict[str, Any]:
    """The rollout of a version, once it has ended; requests come all the time."""
    body = {"name": "score", "candidate": candidate, "plan": PLAN}
    status, made = y.api("POST", "/rollouts", body)
    assert status == 201, made
    seeds = iter(range(10_000))

    def over() -> bool:
        send(y, 0.0, next(seeds))
        return rollout(y, made["id"]).get("phase") in ("healthy", "degraded", "paused")

    y.wait_for(over, f"the rollout of version {candidate} to end", 120)
    return rollout(y, made["id"])


def test_a_version_that_gives_other_labels_is_rolled_back(served: Yard) -> None:
    found = ended(served, OTHER)
    assert found["phase"] == "degraded", found
    assert "PSI of its labels against the stable version's" in found["reason"]
    arms = {one["name"]: one["weight"] for one in served.api("GET", "/routes/score")[1]["arms"]}
    assert arms.get("candidate", 0) == 0
    standing = served.api("GET", f"/rollouts/{found['id']}/standing")[1]
    outcomes = {one["guardrail"]: one["outcome"] for one in standing["verdicts"]}
    assert outcomes["label_drift"] == "fail"
    assert "fail" not in {word for name, word in outcomes.items() if name != "label_drift"}
    assert history(served, found["id"])[-1][1] == 0


def test_a_version_that_gives_the_same_labels_takes_over(served: Yard) -> None:
    found = ended(served, ALIKE)
    assert found["phase"] == "healthy", found
