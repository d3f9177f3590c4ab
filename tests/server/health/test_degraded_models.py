"""A model that is slower than on its last day, and one whose queue starves, are told on a real
server. The last day is what a gateway would have kept of it on its disk."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from repository.folders.snapshot import scan
from server.health import kept
from server.health.kept import KeptHealth, RememberedVersion
from server.health.latencies import HOUR_S, HourLatency
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

CODE = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        out = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
CONFIG = 'backend: "python" output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
USUAL_S = 0.001

Healths = dict[str, dict[str, Any]]
Asked = tuple[Yard, Healths]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The server, and the health of each model: `slowed` was asked one request after the other,
    `starved` 40 at once, `steady` as `slowed`, but was as slow on its last day."""
    folder = tmp_path_factory.mktemp("degraded")
    for name in ("slowed", "starved", "steady"):
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(CODE)
        (version.parent / "config.pbtxt").write_text(CONFIG)
    remember_the_last_day(folder, slowed=USUAL_S, steady=10.0)
    with yard(folder) as one:
        for _ in range(110):
            for name in ("slowed", "steady"):
                ask(one, name)
        with ThreadPoolExecutor(40) as clients:
            list(clients.map(lambda _: ask(one, "starved"), range(40)))
        found: Healths = {name: {"state": ""} for name in ("slowed", "starved", "steady")}

        def judged() -> bool:
            found.update((name, health(one, name)) for name in found)
            return {found[name]["state"] for name in ("slowed", "starved")} == {"DEGRADED"}

        one.wait_for(judged, "both to be degraded", 120.0)
        yield one, found


def remember_the_last_day(folder: Path, **usual_s: float) -> None:
    """The p95 of three full hours of each model, as of a gateway that ran before."""
    models = scan([folder / "models"]).models
    hour = int(time.time()) // HOUR_S * HOUR_S
    rows = [
        RememberedVersion(
            name,
            1,
            models[name].versions[0].digest,
            tuple(HourLatency(hour - at * HOUR_S, p95_s) for at in (4, 3, 2)),
            (),
        )
        for name, p95_s in usual_s.items()
    ]
    kept.write(folder / "state", KeptHealth(tuple(rows)))


def ask(y: Yard, model: str) -> None:
    status, body = y.server.post(f"/v2/models/{model}/infer", {"inputs": []})
    assert status == 200, body


def health(y: Yard, model: str) -> dict[str, Any]:
    """As the API says it; its state is "" until the gateway has reported."""
    rows = [row for row in y.api("GET", f"/loads?model={model}")[1]["items"] if row["version"]]
    return dict(rows[0]["health"]) if rows else {"state": ""}


def test_a_model_that_is_slower_than_on_its_last_day_is_degraded(asked: Asked) -> None:
    found = asked[1]["slowed"]
    assert (found["state"], found["reason_code"]) == ("DEGRADED", "slow")
    sentence = r"p95 .* over 1[01]\d requests from .*, .* times the 1 ms of its last day"
    assert re.fullmatch(sentence, found["reason"]), found["reason"]


def test_a_model_that_is_as_slow_as_ever_is_well(asked: Asked) -> None:
    assert (asked[1]["steady"]["state"], asked[1]["steady"]["reason_code"]) == ("READY", "ok")


def test_a_model_whose_queue_starves_is_degraded(asked: Asked) -> None:
    found = asked[1]["starved"]
    assert (found["state"], found["reason_code"]) == ("DEGRADED", "queue_time")
    sentence = r"\d\d requests from .* waited .* on average to be computed in .*"
    assert re.fullmatch(sentence, found["reason"]), found["reason"]


def test_the_metric_and_the_command_line_say_the_same(asked: Asked) -> None:
    y, found = asked
    text = y.server.get("/metrics", y.server.metrics_port)[1].decode()
    for name, code in (("slowed", "slow"), ("starved", "queue_time")):
        labels = f'model="{name}",version="1",state="DEGRADED",reason_code="{code}"'
        assert f"modelyard_model_state{{{labels}}} 1" in text
    by_model = {one["model"]: one for one in y.cli_json("status")["versions"]}
    assert {name: by_model[name]["state"] for name in found} == {
        "slowed": "DEGRADED",
        "starved": "DEGRADED",
        "steady": "READY",
    }
