"""The gRPC listener of a whole server: a process of its own, a repository on disk."""

from urllib.request import urlopen

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as services

from support.server import running, write_identity

FLOATS = np.arange(16, dtype=np.float32)[None]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "identity", 1, 2)
    with running(repository) as started:
        yield started


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield services.GRPCInferenceServiceStub(channel)


def tensor(name="INPUT0", datatype="FP32", shape=(1, 16)):
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)


def request(*inputs, raw=None, **rest):
    return pb.ModelInferRequest(
        inputs=inputs or [tensor()],
        raw_input_contents=[FLOATS.tobytes()] if raw is None else raw,
        **{"model_name": "identity", **rest},
    )


BAD = {
    "wrong name": (
        request(tensor("NOPE")),
        "INVALID_ARGUMENT",
        "unexpected inference input 'NOPE' for model 'identity'",
    ),
    "wrong dtype": (
        request(tensor(datatype="INT32")),
        "INVALID_ARGUMENT",
        "inference input 'INPUT0' data-type is 'INT32', but model 'identity' expects 'FP32'",
    ),
    "wrong shape": (
        request(tensor(shape=(1, 4, 4))),
        "INVALID_ARGUMENT",
        "unexpected shape for input 'INPUT0' for model 'identity'. Expected [-1,-1], got [1,4,4].",
    ),
    "wrong byte size": (
        request(raw=[FLOATS.tobytes()[:-4]]),
        "INVALID_ARGUMENT",
        "input byte size mismatch for input 'INPUT0' for model 'identity'. Expected 64, got 60",
    ),
    "duplicate input": (
        request(tensor(), tensor(), raw=[FLOATS.tobytes()] * 2),
        "INVALID_ARGUMENT",
        "input 'INPUT0' already exists in request",
    ),
    "batch too large": (
        request(tensor(shape=(9, 16)), raw=[FLOATS.tobytes() * 9]),
        "INVALID_ARGUMENT",
        "inference request batch-size must be <= 8 for 'identity'",
    ),
    "unknown model": (
        request(model_name="nobody"),
        "NOT_FOUND",
        "Request for unknown model: 'nobody' is not found",
    ),
    "unknown version": (
        request(model_version="9"),
        "NOT_FOUND",
        "Request for unknown model: 'identity' version 9 is not found",
    ),
    "version that is no number": (
        request(model_version="-1"),
        "INVALID_ARGUMENT",
        "failed to get model version from specified version string '-1' (details: stol), version "
        "should be an integral value > 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_the_next_request_is_served(stub, case):
    message, code, text = BAD[case]
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(message)
    assert refused.value.code().name == code
    assert text in refused.value.details()
    assert stub.ModelInfer(request()).raw_output_contents == [FLOATS.tobytes()]


def test_the_highest_version_answers_unless_another_is_named(stub):
    assert stub.ModelInfer(request()).model_version == "2"
    assert stub.ModelInfer(request(model_version="1")).model_version == "1"
    assert list(stub.ModelMetadata(pb.ModelMetadataRequest(name="identity")).versions) == ["1", "2"]


def test_metrics_and_statistics_agree(server, stub):
    stub.ModelInfer(request(model_version="1"))
    with client.InferenceServerClient(server.grpc) as triton:
        count = triton.get_inference_statistics("identity", "1").model_stats[0].inference_count
    with urlopen(f"http://{server.metrics}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert f'nv_inference_count{{model="identity",version="1"}} {count}\n' in text
    assert "modelyard_event_loop_stall_seconds_max " in text


def test_repository_control_is_refused_in_poll_mode(stub):
    with pytest.raises(grpc.RpcError) as refused:
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="identity"))
    assert refused.value.code().name == "UNAVAILABLE"
    assert refused.value.details() == (
        "explicit model load / unload is not allowed if polling is enabled"
    )
