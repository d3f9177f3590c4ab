"""Sampled requests over the control API of a whole server: switched on, looked up, switched off."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from sqlalchemy import select

from control.jobs import service
from control.jobs.tables import JobTraffic
from control.jobs.traffic import decode_traffic
from control.sql.database import Database
from support.admin import basic
from support.console_seed import PASSWORD
from support.yard import Yard, write_identity, yard


def infer(y: Yard, identity: str, values: list[float], model: str = "digits") -> None:
    tensor = {"name": "INPUT0", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    connection = HTTPConnection("127.0.0.1", y.server.http_port, timeout=60)
    body = json.dumps({"id": identity, "inputs": [tensor]})
    connection.request("POST", f"/v2/models/{model}/infer", body)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


def infer_over_grpc(y: Yard, identity: str) -> None:
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{y.server.grpc_port}")
    tensor = triton_grpc.InferInput("INPUT0", [1, 9], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 9), np.float32))
    client.infer("digits", [tensor], request_id=identity)
    client.close()


def as_person(y: Yard, name: str, verb: str, path: str, body: Any = None) -> int:
    connection = HTTPConnection("127.0.0.1", y.admin_port, timeout=60)
    said = {"Authorization": basic(name, PASSWORD), "Content-Type": "application/json"}
    connection.request(verb, f"/api/v1{path}", None if body is None else json.dumps(body), said)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def items(y: Yard, path: str) -> list[Any]:
    status, found = y.api("GET", path)
    assert status == 200, found
    return list(found["items"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("samples")) as y:
        folder = y.repository("vision")
        write_identity(folder, "digits", 1)
        y.commit(folder, "Digits")
        y.push(folder)
        y.wait_versions("digits", 1)
        for name, role in (("otto", "operator"), ("vera", "viewer")):
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


@pytest.fixture
def y(served: Yard) -> Iterator[Yard]:
    """With sampling off."""
    yield served
    served.api("DELETE", "/sampling/digits")


def test_nothing_is_kept_until_it_is_switched_on_nor_after(y: Yard) -> None:
    infer(y, "before", [1.0])
    assert items(y, "/samples?id=before") == []
    status, made = y.api("PUT", "/sampling/digits", {"minutes": 5})
    assert (status, made["active"], made["values"]) == (200, True, False)
    infer(y, "while", [1.0])
    assert y.api("DELETE", "/sampling/digits")[0] == 204
    infer(y, "after", [1.0])
    assert items(y, "/samples?id=after") == []
    assert items(y, "/samples?id=while") != []
    actions = [one["action"] for one in items(y, "/audit?action=sampling.&limit=2")]
    assert actions == ["sampling.stopped", "sampling.started"]


def test_requests_of_both_listeners_are_found_by_id_without_their_values(y: Yard) -> None:
    y.api("PUT", "/sampling/digits", {})
    infer(y, "order-1", [float(one) for one in range(9)])
    infer_over_grpc(y, "order-2")
    first, second = (items(y, f"/samples?id=order-{n}")[0] for n in (1, 2))
    assert (first["state"], first["status"], first["version"]) == ("ok", 200, 1)
    assert first["inputs"][0]["about"]["most"] == 8.0
    assert "values" not in first["inputs"][0]
    assert second["outputs"][0]["shape"] == [1, 9]
    assert items(y, "/samples?model=faces") == []


def test_the_arm_that_answered_is_told(y: Yard) -> None:
    y.api("PUT", "/sampling/digits", {})
    arms = [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]
    y.api("PUT", "/routes/shop", {"arms": arms})
    y.wait_for(lambda: _answers(y, "shop"), "the route")
    infer(y, "order-3", [3.0], "shop")
    assert items(y, "/samples?id=order-3")[0]["arm"] == "digits@1;stable"
    y.api("DELETE", "/routes/shop")


def test_values_are_kept_only_where_an_administrator_says_so(y: Yard) -> None:
    assert as_person(y, "otto", "PUT", "/sampling/digits", {"values": True}) == 403
    assert y.api("PUT", "/sampling/digits", {"values": True})[0] == 200
    infer(y, "order-4", [42.0])
    assert items(y, "/samples?id=order-4")[0]["inputs"][0]["values"] == [42.0]


def test_a_viewer_neither_looks_nor_switches(y: Yard) -> None:
    assert as_person(y, "vera", "GET", "/samples") == 403
    assert as_person(y, "vera", "GET", "/sampling") == 403
    assert as_person(y, "vera", "PUT", "/sampling/digits", {}) == 403
    assert as_person(y, "vera", "DELETE", "/sampling/digits") == 403
    assert as_person(y, "otto", "PUT", "/sampling/digits", {}) == 200


def test_a_mistyped_model_is_refused(y: Yard) -> None:
    status, found = y.api("PUT", "/sampling/digitz", {})
    assert (status, found["error"]["code"]) == (404, "not_found")


@pytest.mark.slow
def test_a_new_gateway_samples_nothing(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        write_identity(tmp_path, "digits", 1)
        y.wait_versions("digits", 1)
        y.wait_for(lambda: items(y, "/loads") != [], "the load to be told")
        assert y.api("PUT", "/sampling/digits", {})[0] == 200
        y.again()
        y.wait_for(lambda: y.api("GET", "/sampling")[0] == 200, "the gateway to be asked")
        assert items(y, "/sampling") == []


def _answers(y: Yard, model: str) -> bool:
    connection = HTTPConnection("127.0.0.1", y.server.http_port, timeout=60)
    connection.request("GET", f"/v2/models/{model}/ready")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def test_a_profile_takes_the_requests_that_were_sampled(y: Yard) -> None:
    spec = {"type": "profile", "model": "digits", "data": "sampled"}
    # No worker has this queue.
    given = {"spec": spec, "queue": "nobody"}
    y.api("PUT", "/sampling/digits", {"values": True})
    infer(y, "traffic", [0.0])
    status, refused = y.api("POST", "/jobs", given)
    assert status == 422
    assert "20 are needed" in refused["error"]["message"]
    for number in range(20):
        infer(y, "traffic", [float(number), 7.0])
    status, made = y.api("POST", "/jobs", given)
    assert status == 202, made
    other = {"spec": {**spec, "type": "quantise"}, "queue": "nobody"}
    status, quantised = y.api("POST", "/jobs", other)
    assert status == 202, quantised
    database = Database(f"sqlite:///{y.state / 'modelyard.db'}")
    with database.reading() as session:
        kept = decode_traffic(service.get_traffic(session, made["id"]))
        assert session.scalars(select(JobTraffic.job_id)).all() == [made["id"]]
    database.close()
    assert [one.inputs[0].values for one in kept[-20:]] == [(n, 7.0) for n in range(20)]
    assert [one.at_s for one in kept] == sorted(one.at_s for one in kept)
