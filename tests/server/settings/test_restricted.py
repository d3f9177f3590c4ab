"""Restricted APIs: which path belongs to which category, and who is let in."""

import queue
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.routing import Route
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from server.dataplane import DataPlane
from server.openai.endpoints import OpenAIEndpoints
from server.rest.app import rest_app
from server.rest.endpoint import BodyLimits
from server.settings.restricted import (
    CATEGORIES,
    ROUTES,
    RPCS,
    RequiredHeader,
    category_of_path,
    read_locks,
)
from support.grpc import Shelf
from support.http import INFER, ask, infer_body
from support.server import running, write_identity

DENIED = "This API is restricted, expecting header 'x-key'"


def test_every_rest_route_has_a_category() -> None:
    dataplane, limits = DataPlane(Shelf([]), "modelyard", "0"), BodyLimits(1000, 10)
    for route in rest_app(
        dataplane, limits, more=OpenAIEndpoints(dataplane, limits).routes()
    ).routes:
        assert isinstance(route, Route)
        path = route.path.replace("{version}", "1")
        for name in ("model", "repository", "region"):
            path = path.replace(f"{{{name}}}", "some-name")
        assert "{" not in path, f"{route.path}: teach this test the parameter"
        assert category_of_path(path) in CATEGORIES, f"{route.path} has no category in ROUTES"


def test_every_category_has_a_route_and_every_rpc_a_category() -> None:
    assert {category for _, category in ROUTES} == set(CATEGORIES)
    service = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {method.name for method in service.methods} <= set(RPCS)
    assert set(RPCS.values()) == set(CATEGORIES)


@pytest.mark.parametrize(
    ("path", "category"),
    [
        ("/v2/models/stats", "statistics"),
        ("/v2/models/stats/versions/1", "metadata"),
        ("/v2/models/m/versions/3/generate_stream", "inference"),
        ("/v2/models/infer", "metadata"),
        ("/v2/models/m/trace/setting", "trace"),
        ("/v2/cudasharedmemory/region/r/unregister", "shared-memory"),
        ("/v2/systemsharedmemory/status", "shared-memory"),
        ("/nothing", None),
    ],
)
def test_paths_belong_to_categories(path: str, category: str | None) -> None:
    assert category_of_path(path) == category


def test_rules_are_read_with_several_apis_and_equals_signs_in_the_value() -> None:
    locks = read_locks(["inference,health:X-Key=a=b", "trace:other=v"], "pre-")
    assert locks == {
        "inference": RequiredHeader("pre-x-key", "a=b"),
        "health": RequiredHeader("pre-x-key", "a=b"),
        "trace": RequiredHeader("pre-other", "v"),
    }


@pytest.mark.parametrize(
    "rule", ["inference", "inference:key", "inference:=v", "inference:key=", "nonsense:k=v", ":k=v"]
)
def test_a_rule_of_another_form_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="is not APIS:KEY=VALUE"):
        read_locks([rule])


def test_an_api_is_restricted_once() -> None:
    with pytest.raises(ValueError, match="'health' is restricted twice"):
        read_locks(["health:a=b", "health:c=d"])


def test_a_restricted_api_wants_its_header_on_every_path(tmp_path: Path) -> None:
    write_identity(tmp_path, "echo")
    rule = "inference,model-repository:X-Key=se cret"
    with running(tmp_path, allow_grpc=False, http_restricted_api=[rule]) as server:
        generate = b'{"INPUT0": 1}'
        for path, body in (
            (INFER, infer_body()),
            ("/v2/models/echo/versions/1/infer", infer_body()),
            ("/v2/models/echo/generate", generate),
            ("/v2/models/echo/gener%61te", generate),
            ("/v2/models/echo/generate_stream", generate),
            ("/v2/repository/index", b""),
        ):
            for headers in ({}, {"x_key": "se cre"}, {"x_key": "se crett"}, {"key": "se cret"}):
                denied = ask(server, "POST", path, body, **headers)
                assert (denied.status, denied.error) == (403, DENIED), path
            assert ask(server, "POST", path, body, x_key="se cret").status == 200, path
        assert ask(server, "GET", "/v2/health/ready").status == 200
        assert ask(server, "GET", "/v2/models/echo").status == 200
        assert ask(server, "POST", INFER, b"x" * (1 << 20)).status == 403


def test_a_restricted_protocol_wants_its_metadata(tmp_path: Path) -> None:
    write_identity(tmp_path, "echo")
    rule = "inference,health:Key=secret"
    denied = r"This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
    key = {"triton-grpc-protocol-key": "secret"}
    asked = triton.InferInput("INPUT0", [1, 1], "FP32")
    asked.set_data_from_numpy(np.ones((1, 1), np.float32))
    with (
        running(tmp_path, grpc_restricted_protocol=rule) as server,
        triton.InferenceServerClient(server.grpc) as client,
    ):
        for headers in (None, {"triton-grpc-protocol-key": "other"}):
            with pytest.raises(InferenceServerException, match=denied) as caught:
                client.infer("echo", [asked], headers=headers)
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
            with pytest.raises(InferenceServerException, match=denied):
                client.is_server_live(headers=headers)
        assert client.is_server_live(headers=key)
        assert client.is_server_live(headers={"triton-grpc-protocol-key": "  secret "})
        assert client.infer("echo", [asked], headers=key).as_numpy("OUTPUT0") == 1
        assert client.get_server_metadata().name == "modelyard"
        assert stream_error(client, asked, None)
        assert not stream_error(client, asked, key)
        with grpc.insecure_channel(server.grpc) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            with pytest.raises(grpc.RpcError, match=denied):
                check(health_pb2.HealthCheckRequest())
            request = health_pb2.HealthCheckRequest()
            assert check(request, metadata=[*key.items()]).status == request_serving()


def request_serving() -> int:
    serving: int = health_pb2.HealthCheckResponse.SERVING
    return serving


def stream_error(
    client: triton.InferenceServerClient, asked: triton.InferInput, headers: dict[str, str] | None
) -> str:
    """The error a stream of one request gets, or nothing."""
    told: queue.Queue[object] = queue.Queue()
    client.start_stream(lambda result, error: told.put(error), headers=headers)
    with suppress(InferenceServerException):  # refused before it could send
        client.async_stream_infer("echo", [asked])
    error = told.get(timeout=60)
    client.stop_stream()
    return str(error or "")
