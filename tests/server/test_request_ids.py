"""Every response says its request's id, by which one learns which version answered."""

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as services

from support.server import Server, identity_config, running, write_identity
from tests.server.cli.commands.test_status import modelyard

OURS = re.compile(r"[0-9a-f]{12}-[0-9a-f]+")
BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": [0] * 16}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ids")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    repository = folder / "models"
    repository.mkdir()
    write_identity(repository, "good")
    write_identity(repository, "slow", config=identity_config("slow", delay_ms=60))
    with running(repository, allow_admin=True, state_dir=folder / "state") as one:
        one.wait_for(lambda: "admin  " in one.log(), "the control API")
        yield one


def ask(server: Server, path: str, body: Any = None, **headers: str) -> tuple[int, str, Any]:
    """Status, id and body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    raw = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, raw, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    found = response.headers.get_all("x-request-id")
    assert found is not None
    assert len(found) == 1
    return response.status, found[0], json.loads(text or "{}")


def message(client_id: str) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 16])
    tensor.contents.fp32_contents.extend([0.0] * 16)
    return pb.ModelInferRequest(model_name="good", id=client_id, inputs=[tensor])


def known(folder: Path, *words: str) -> list[dict[str, Any]]:
    status, out, err = modelyard(folder, "request", *words, "--json")
    assert (status, err) == (0, ""), err
    items: list[dict[str, Any]] = json.loads(out)
    return items


@pytest.mark.parametrize(
    "path",
    ["/v2", "/v2/health/live", "/v2/models/none", "/nowhere", "/v1/models", "/v2/models/good"],
)
def test_what_is_no_inference_has_an_id_too(server: Server, path: str) -> None:
    ids = {ask(server, path)[1] for _ in range(3)}
    assert len(ids) == 3
    assert all(OURS.fullmatch(one) for one in ids)


def test_over_rest_the_body_keeps_the_clients_id_and_the_header_says_ours(
    server: Server, folder: Path
) -> None:
    status, ours, answer = ask(server, "/v2/models/good/infer", BODY)
    assert (status, "id" in answer) == (200, False)
    assert OURS.fullmatch(ours)
    (row,) = known(folder, ours)
    assert (row["id"], row["client_id"], row["outcome"]) == (ours, "", "ok")
    assert (row["model"], row["version"], row["instance"]) == ("good", 1, 0)

    _, other, answer = ask(server, "/v2/models/good/infer", {**BODY, "id": "twice"})
    assert answer["id"] == "twice"
    ask(server, "/v2/models/good/infer", {**BODY, "id": "twice"})
    rows = known(folder, "twice")
    assert [row["client_id"] for row in rows] == ["twice", "twice"]
    assert other in {row["id"] for row in rows}
    assert len({row["id"] for row in rows}) == 2

    _, _, answer = ask(server, "/v2/models/good/infer", {**BODY, "id": "long" * 100})
    assert answer["id"] == "long" * 100
    assert [row["client_id"] for row in known(folder, "long" * 32)] == ["long" * 32]


def test_an_id_in_the_clients_header_is_said_again_and_found(server: Server, folder: Path) -> None:
    assert ask(server, "/v2/models/good/infer", BODY, **{"X-Request-Id": "edge-7"})[1] == "edge-7"
    assert ask(server, "/v2", **{"X-Request-Id": "edge-7"})[1] == "edge-7"
    (row,) = known(folder, "edge-7")
    assert OURS.fullmatch(row["id"])
    assert known(folder, row["id"]) == [row]


def test_a_refused_request_is_found_with_its_reason(server: Server, folder: Path) -> None:
    status, unknown, _ = ask(server, "/v2/models/none/infer", BODY)
    wrong = {"inputs": [{**BODY["inputs"][0], "name": "x\u00e4"}]}
    status, misnamed, _ = ask(server, "/v2/models/good/infer", {**wrong, "id": "w"})
    assert status == 400
    (row,) = known(folder, unknown)
    assert (row["model"], row["version"], row["outcome"]) == ("none", 0, "refused")
    assert "unknown model" in row["error"]
    (row,) = known(folder, misnamed)
    assert (row["model"], row["version"], row["outcome"]) == ("good", 1, "refused")
    assert "unexpected inference input" in row["error"]
    assert row in known(folder, "--outcome", "refused", "--model", "good")


def test_where_the_time_went_is_told_and_the_slowest_are_found(
    server: Server, folder: Path
) -> None:
    _, ours, _ = ask(server, "/v2/models/slow/infer", BODY)
    (row,) = known(folder, ours)
    assert 0.06 <= row["compute_s"] < 60
    slowest = known(folder, "--slowest", "--least-ms", "60", "--model", "slow", "--limit", "1")
    assert slowest[0]["model"] == "slow"
    assert known(folder, "--least-ms", "60", "--model", "good") == []


def test_over_grpc_the_initial_metadata_has_it(server: Server, folder: Path) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = services.GRPCInferenceServiceStub(channel)

        def infer(request: pb.ModelInferRequest, *metadata: tuple[str, str]) -> tuple[str, Any]:
            answer, call = stub.ModelInfer.with_call(request, metadata=metadata)
            return dict(call.initial_metadata())["x-request-id"], answer

        asked = message("g")
        ours, answer = infer(asked)
        assert answer.id == "g"
        (row,) = known(folder, ours)
        assert (row["client_id"], row["model"], row["outcome"]) == ("g", "good", "ok")
        again, _ = infer(asked)
        assert again != ours
        assert infer(asked, ("x-request-id", "theirs"))[0] == "theirs"

        call = stub.ServerLive.with_call(pb.ServerLiveRequest())[1]
        assert OURS.fullmatch(dict(call.initial_metadata())["x-request-id"])
        with pytest.raises(grpc.RpcError) as refused:
            infer(pb.ModelInferRequest(model_name="none"))
        ours = dict(refused.value.trailing_metadata())["x-request-id"]  # there is no other
        assert known(folder, ours)[0]["outcome"] == "refused"


def test_the_requests_of_a_stream_are_told_apart(server: Server, folder: Path) -> None:
    one = message("s")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = services.GRPCInferenceServiceStub(channel)
        call = stub.ModelStreamInfer(iter([one, one]), metadata=(("x-request-ids", "true"),))
        ours = dict(call.initial_metadata())["x-request-id"]
        named = [answer.infer_response.parameters["x-request-id"].string_param for answer in call]
        assert named == [f"{ours}.1", f"{ours}.2"]
        assert {row["id"] for row in known(folder, ours)} == set(named)
        assert [row["id"] for row in known(folder, f"{ours}.2")] == [f"{ours}.2"]
        plain = next(stub.ModelStreamInfer(iter([one])))
        assert "x-request-id" not in plain.infer_response.parameters


def test_an_id_that_nobody_has_seen_is_said_so(server: Server, folder: Path) -> None:
    status, _, err = modelyard(folder, "request", "0123456789ab-1")
    assert status == 1
    assert "no request with the id '0123456789ab-1' is among the last" in err
