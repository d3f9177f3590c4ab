"""A server's traffic is in its time series, whichever of its processes ends meanwhile."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow


@pytest.fixture
def y(tmp_path: Path) -> Iterator[Yard]:
    write_identity(tmp_path, "identity", 1)
    with yard(tmp_path) as one:
        yield one


def infer(y: Yard, times: int, model: str = "identity") -> None:
    for _ in range(times):
        assert y.server.post(f"/v2/models/{model}/infer", BODY)[0] == 200


BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}


def series(y: Yard, **query: Any) -> dict[str, Any]:
    since = (datetime.now(UTC) - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    until = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = "&".join(f"{k}={v}" for k, v in ({"since": since, "until": until} | query).items())
    status, found = y.api("GET", f"/series?{given}")
    assert status == 200, found
    return dict(found)


def requests(page: dict[str, Any]) -> dict[str, float]:
    return {
        one["name"]: round(sum(rate or 0 for rate in one["requests_per_s"]) * page["step_s"])
        for one in page["items"]
    }


def test_no_request_is_missing_after_restarts_of_either_process(y: Yard) -> None:
    infer(y, 7)
    y.again()
    infer(y, 5)
    before = y.control_pid()
    os.kill(before, signal.SIGKILL)
    infer(y, 3)
    y.wait_for(lambda: y.control_pid() not in (0, before) and y.answers(), "another process")
    y.again()

    assert requests(series(y))["identity"] == 15
    assert requests(series(y, model="identity")) == {"1": 15}
    assert requests(series(y, by="server"))["server"] >= 15
    whole = series(y, model="identity", version=1, points=1)
    assert requests(whole) == {"1": 15}
    (line,) = whole["items"]
    (p99_ms,) = line["latency_ms_p99"]
    assert p99_ms > 0
    assert {*line["error_rate"]} <= {None, 0.0}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=moon", "by"),
        ("by=arm", "route"),
        ("by=version", "model"),
        ("by=server&model=identity", "by"),
        ("since=2026-01-01T00:00:00Z&until=2025-01-01T00:00:00Z", "since"),
        ("since=2025-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_naming_the_parameter(
    shared: Yard, query: str, field: str
) -> None:
    status, answer = shared.api("GET", f"/series?{query}")
    assert status == 400, answer
    assert answer["error"]["field"] == field


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("series")) as one:
        yield one
