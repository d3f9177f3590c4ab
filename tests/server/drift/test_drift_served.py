"""Drift of a whole server: a shifted stream of requests is found, told, and seen by a rollout."""

import json
from collections.abc import Iterator

import pytest

from support.drift import metrics, of_version, report, send_until, watch, write_model
from support.webhook_receiver import Receiver, receiver
from support.yard import Yard, yard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hooked() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, hooked: Receiver) -> Iterator[Yard]:
    """A server whose model has a reference of what it got at first."""
    folder = tmp_path_factory.mktemp("drift")
    (folder / "models").mkdir()
    write_model(folder / "models", 0.0, 0.0)
    with yard(folder, drift_window_secs=1, notification_allow=hooked.url) as y:
        body = {"name": "on-call", "url": hooked.url, "kinds": ["model.drifted"]}
        assert y.api("POST", "/webhooks", body)[0] == 201
        watch(y)
        yield y


def test_a_stream_like_the_reference_is_stable(watched: Yard) -> None:
    send_until(watched, "stable", 0.0)
    names = {(one["role"], one["name"]) for one in of_version(watched, 2)["features"]}
    assert names == {
        ("input", "x[0]"),
        ("input", "x[1]"),
        ("input", "x[2]"),
        ("label", "scores"),
        ("confidence", "scores.confidence"),
    }


def test_a_shifted_stream_is_found_and_told(watched: Yard, hooked: Receiver) -> None:
    send_until(watched, "drifted", 1.5)
    features = of_version(watched, 2)["features"]
    states = {one["name"]: one["state"] for one in features}
    assert (states["x[0]"], states["x[1]"], states["x[2]"]) == ("drifted", "stable", "stable")
    assert states["scores"] == "drifted"
    bins = next(one for one in features if one["name"] == "scores")["bins"]
    assert {one["name"] for one in bins} == {"low", "high"}

    shown = watched.cli("drift", "show", "score", "--version", "2")
    assert "x[0]" in shown.splitlines()[1] or "scores" in shown.splitlines()[1]
    problems = watched.api("GET", "/problems")[1]["items"]
    assert [one["title"] for one in problems if one["kind"] == "drift"] == [
        "score version 2 has drifted"
    ]
    kinds = [one["kind"] for one in watched.api("GET", "/events?limit=200")[1]["items"]]
    assert kinds.count("model.drifted") == 1

    watched.wait_for(lambda: bool(hooked.messages), "a message", 60)
    assert "score version 2 has drifted" in hooked.messages[0].body.decode()
    label = 'model="score",version="2",feature="input x[0]"'
    watched.wait_for(
        lambda: f"modelyard_drift_detected{{{label}}} 1" in metrics(watched), "the metric", 30
    )


def test_a_window_is_a_profile_for_a_file(watched: Yard) -> None:
    out = watched.folder / "drift_profile.json"
    watched.cli(
        "drift", "profile", "score", "--version", "2", "--since", "2026-01-01T00:00:00Z",
        "-o", str(out),
    )  # fmt: skip
    assert json.loads(out.read_text())["format"] == 1
    watched.cli("drift", "reference", "score", "--profile", str(out))
    assert report(watched)["watch"]["reference"]["kind"] == "profile"


def test_what_cannot_be_is_refused_in_words(watched: Yard) -> None:
    status, found = watched.api("PUT", "/drift/absent", {})
    assert (status, "no server has a model 'absent'" in str(found)) == (404, True)
    body = {"kind": "window", "version": 9, "since": "2026-01-01T00:00:00Z"}
    status, found = watched.api("PUT", "/drift/score/reference", body)
    assert (status, "takes 200 (min_sample)" in str(found)) == (422, True), found
    assert watched.api("GET", "/drift/absent")[0] == 404
    said = watched.cli("drift", "reference", "score", ok=False)
    assert "give one of --version, --profile, --pushed and --none" in said


def test_unwatching_forgets_all(watched: Yard) -> None:
    watched.cli("drift", "unwatch", "score")
    assert watched.api("GET", "/drift")[1]["items"] == []
    watched.wait_for(
        lambda: 'modelyard_drift_state{model="score"' not in metrics(watched), "metrics to go", 30
    )
