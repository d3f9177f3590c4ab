"""ModelStreamInfer: order, errors, cancelling."""

import queue
from typing import Any

import grpc
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as services

from support.grpc import open_listener
from support.grpc_requests import FLOATS, floats, identity, refusal, slow


@pytest.fixture(scope="module")
def listener():
    with open_listener() as opened:
        yield opened


@pytest.fixture
def triton(listener):
    with client.InferenceServerClient(listener.url) as opened:
        yield opened


@pytest.fixture
def channel(listener):
    with grpc.insecure_channel(listener.url) as opened:
        yield opened


def test_a_stream_answers_in_the_order_it_was_asked(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    asked = [slow("a"), *(identity(str(number)) for number in range(600))]
    answers = list(stub.ModelStreamInfer(iter(asked)))
    assert [answer.infer_response.id for answer in answers] == [message.id for message in asked]
    for answer in answers:
        assert not answer.error_message
        assert answer.infer_response.parameters["triton_final_response"].bool_param


def test_stock_client_streams():
    results: queue.Queue[Any] = queue.Queue()
    with open_listener() as listener, client.InferenceServerClient(listener.url) as triton:
        triton.start_stream(lambda result, error: results.put((result, error)))
        for number in range(3):
            triton.async_stream_infer("identity", [floats()], request_id=str(number))
        found = [results.get(timeout=60) for _ in range(3)]
        triton.stop_stream()
    assert [error for _, error in found] == [None] * 3
    assert [result.get_response().id for result, _ in found] == ["0", "1", "2"]


def test_a_refused_request_does_not_end_the_stream(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    asked = [identity("1", model_name="nobody"), identity("2")]
    refused, served = stub.ModelStreamInfer(iter(asked))
    assert refused.error_message == "Request for unknown model: 'nobody' is not found"
    assert refused.infer_response == pb.ModelInferResponse(id="1")
    assert served.infer_response.raw_output_contents == [FLOATS.tobytes()]


def test_a_stream_survives_what_is_no_request_at_all(channel):
    raw = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    refused, served = map(
        pb.ModelStreamInferResponse.FromString, raw(iter([b"\xff", identity().SerializeToString()]))
    )
    assert refused.error_message.startswith("failed to parse the request as ")
    assert served.infer_response.outputs


def test_with_triton_grpc_error_the_first_error_ends_the_stream(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    asked = [identity("1"), identity("2", model_name="nobody"), identity("3")]
    answers = stub.ModelStreamInfer(iter(asked), metadata=[("triton_grpc_error", "true")])
    assert next(answers).infer_response.id == "1"
    assert refusal(lambda: next(answers)) == (
        "NOT_FOUND",
        "Request for unknown model: 'nobody' is not found",
    )


def test_a_stream_that_is_cancelled_cancels_its_requests(listener, channel):
    stub = services.GRPCInferenceServiceStub(channel)
    answers = stub.ModelStreamInfer(iter([slow("1"), slow("2")]))
    listener.wait_for(lambda: listener.served("slow").counters.pending == 1, "one to wait")
    answers.cancel()
    listener.wait_for(
        lambda: listener.served("slow").scheduler.inflight() == 0, "nothing in flight"
    )
