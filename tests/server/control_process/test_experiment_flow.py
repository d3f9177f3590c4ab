"""An experiment over a route, from the API through the gateway to its verdict."""

import json
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.yard import Yard, write_identity, yard

ARMS = [
    {"name": "a", "model": "m", "version": 1, "weight": 50},
    {"name": "b", "model": "m", "version": 2, "weight": 50},
]
BOUGHT = {
    "name": "bought",
    "kind": "proportion",
    "direction": "up",
    "minimal_effect": 0.01,
    "missing": "ignored",
}
UNITS = 200


def posted(y: Yard, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{y.server.http_port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), json.loads(error.read())


def asked(y: Yard, unit: str) -> tuple[str, str]:
    """Whom a unit meets, and the stamp that its answer brings."""
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    status, headers, said = posted(y, "/v2/models/shop/infer", body, **{"x-user": unit})
    assert status == 200, said
    return headers["x-modelyard-route"].partition(";")[2], headers.get("x-modelyard-stamp", "")


def analysis(y: Yard) -> Any:
    return y.api("GET", "/experiments/colour/analysis")[1]


@pytest.mark.slow
def test_units_are_exposed_and_their_feedback_comes_to_a_verdict(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        work = y.repository()
        write_identity(work, "m", 1, 2, config="version_policy { all {} }")
        y.commit(work, "two versions")
        y.push(work)
        y.wait_versions("m", 1, 2)
        y.api("PUT", "/routes/shop", {"arms": ARMS, "unit": "header:x-user"})
        trial = {"name": "colour", "route": "shop", "metrics": [BOUGHT]}
        assert y.api("POST", "/experiments", trial)[0] == 201
        assert y.api("POST", "/experiments/colour/start")[0] == 200
        y.wait_for(lambda: bool(asked(y, "first")[1]), "stamps")
        met: Counter[str] = Counter()
        values = []
        for number in range(UNITS):
            arm, stamp = asked(y, f"u{number}")
            met[arm] += 1
            told = {"metric": "bought", "value": arm == "b"}
            values.append(
                {**told, "stamp": stamp} if number % 2 else {**told, "unit": f"u{number}"}
            )
        taken = posted(y, "/v2/models/shop/feedback", {"values": values})
        assert (taken[0], taken[2]) == (200, {"accepted": UNITS})
        wrong = posted(y, "/v2/models/m2/feedback", values[1])
        assert (wrong[0], "not of 'm2'" in wrong[2]["error"]) == (400, True)

        def counted() -> bool:
            (row,) = analysis(y)["comparisons"]
            return bool(row["n"] == UNITS)

        y.wait_for(counted, "every value to count")
        found = analysis(y)
        met[asked(y, "first")[0]] += 1
        assert found["units"] == met
        (row,) = found["comparisons"]
        assert (row["value"], row["control_value"], row["decision"]) == (1.0, 0.0, "better")
        assert found["verdict"].startswith("b is better than a in bought")
        assert (
            b"modelyard_exposures_dropped 0" in y.server.get("/metrics", y.server.metrics_port)[1]
        )
