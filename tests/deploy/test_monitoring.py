"""The shipped Prometheus and Grafana files, against a real Prometheus over a busy server."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import write_dashboard
from support.openai import START_SECS, write_language
from support.prometheus import query, scraping, until_found
from support.server import ROOT, identity_config, write_identity
from support.tls_proxy import command_of
from support.yard import Yard, yard

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD = json.loads(write_dashboard.FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [
    (f"{panel['title']} {target['refId']}", target["expr"])
    for panel in PANELS
    for target in panel["targets"]
]
VARIABLES = {"$__rate_interval": "20s", "$instance": ".*", "$model": ".*"}
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
FAILS = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("never")
"""
IN_AND_OUT = """
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def test_the_dashboard_is_up_to_date() -> None:
    assert write_dashboard.FILE.read_text() == write_dashboard.text(), "run ./dev fix"


def test_the_dashboards_panels_do_not_overlap_and_each_is_explained() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] and panel["targets"] for panel in PANELS)


def test_the_dashboard_asks_the_data_source_that_is_chosen() -> None:
    asked = {target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]}
    assert asked == {"${datasource}"}
    names = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "instance", "model"}
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/modelyard.yml").read_text())
    assert [one["type"] for one in sources["datasources"]] == ["prometheus"]


def test_every_alert_says_what_is_wrong_and_what_to_do_and_a_case_fires_it() -> None:
    cases = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    fired = {
        one["alertname"] for case in cases for one in case["alert_rule_test"] if "exp_alerts" in one
    }
    assert {rule["alert"] for rule in RULES} == fired
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked", ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts.test.yml"]
)
def test_promtool_finds_nothing_wrong(asked: str) -> None:
    command = [command_of("promtool"), *asked.split()]
    done = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Yard]]:
    """The address of a Prometheus that has looked for a while at a server of which everything is
    asked."""
    command_of("prometheus")
    home, folder = tmp_path_factory.mktemp("yard"), tmp_path_factory.mktemp("prometheus")
    write_models(home / "models")
    shutil.copy(PROMETHEUS / "alerts.yml", folder)
    config = (PROMETHEUS / "prometheus.yml").read_text()
    flags: dict[str, object] = {
        "cache_config": "local,size=1048576",
        "strict_readiness": False,
        "initial_fetch_timeout_secs": 1,
        "drift_window_secs": 1,
    }
    with yard(home, **flags) as running, scraping(running.server.metrics, folder, config) as at:
        running.wait_for(lambda: is_ready(running, "talker"), "the model", START_SECS)
        arms = [
            {"name": "stable", "model": "echo", "version": 1, "weight": 90},
            {"name": "candidate", "model": "echo", "version": 2, "weight": 10},
        ]
        mirrors = [{"arm": "candidate", "percent": 50}]
        route = {"arms": arms, "mirrors": mirrors}
        made = partial(running.api, "PUT", "/routes/shop", route)
        running.wait_for(lambda: made()[0] == 200, "the route")
        running.cli("drift", "watch", "echo", "--min-sample", "50")
        running.wait_for(lambda: has_reference(running), "a reference for drift", 60)
        yield at, running


def has_reference(running: Yard) -> bool:
    """Once enough was counted of the version that answers."""
    for _ in range(10):
        ask_everything(running)
    body = {"kind": "window", "version": 2, "since": "2026-01-01T00:00:00Z"}
    return running.api("PUT", "/drift/echo/reference", body)[0] == 200


def write_models(models: Path) -> None:
    write_identity(models, "echo", 1, 2)
    cached = identity_config("cached", extra="response_cache { enable: true }")
    write_identity(models, "cached", config=cached)
    on_demand = 'parameters { key: "load_on_demand" value { string_value: "true" } }'
    write_identity(models, "seldom", config=identity_config("seldom", extra=on_demand))
    write_language(models)
    (models / "bad" / "1").mkdir(parents=True)
    (models / "bad" / "1" / "model.py").write_text(FAILS)
    (models / "bad" / "config.pbtxt").write_text(f'backend: "python"\n{IN_AND_OUT}')
    (models / "torn" / "1").mkdir(parents=True)
    (models / "torn" / "1" / "model.onnx").write_bytes(b"torn")


def is_ready(running: Yard, model: str) -> bool:
    return running.server.is_ready(f"/v2/models/{model}/ready")


def ask_everything(running: Yard) -> None:
    """Each model and the route once."""
    body = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    for model in ("echo", "cached", "seldom", "shop"):
        running.server.post(f"/v2/models/{model}/infer", {"inputs": [body]})
    running.server.post("/v2/models/bad/infer", {"inputs": [body | {"shape": [2]}]})
    with suppress(OSError):
        running.server.post(
            "/v1/completions", {"model": "talker", "prompt": "Once upon", "max_tokens": 8}
        )


@pytest.mark.slow
@pytest.mark.parametrize(("where", "text"), TARGETS, ids=[where for where, _ in TARGETS])
def test_every_query_of_the_dashboard_finds_its_series(
    busy: tuple[str, Yard], where: str, text: str
) -> None:
    address, running = busy
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    numbers = f"({text}) >= 0"  # which NaN is not
    assert until_found(address, lambda: ask_everything(running), numbers), f"{where}: {text}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_is_understood_and_asks_for_series_that_exist(
    busy: tuple[str, Yard], rule: dict[str, Any]
) -> None:
    address, running = busy
    query(address, rule["expr"])
    for metric in sorted(metrics_in(rule["expr"])):
        assert until_found(address, lambda: ask_everything(running), metric), metric


def metrics_in(expression: str) -> set[str]:
    words = expression.replace("(", " ").replace("{", " ").replace("[", " ").replace(")", " ")
    return {word for word in words.split() if word.startswith(("nv_", "modelyard_", "up"))}


@pytest.mark.slow
def test_a_model_that_fails_and_one_that_cannot_be_loaded_are_alerts(
    busy: tuple[str, Yard],
) -> None:
    address, running = busy
    text = 'ALERTS{alertname="ModelyardModelFailing",model="torn"}'
    (found,) = until_found(address, lambda: ask_everything(running), text)
    assert found["metric"]["reason_code"] == "load_error"
