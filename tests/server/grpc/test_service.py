"""The gRPC listener over real identity models, called by stock clients."""

import queue
import socket

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as services
from tritonclient.utils import InferenceServerException

from support.grpc import IDENTITY, SLOW, Open, open_listener
from support.grpc_requests import FLOATS, floats, identity, refusal, slow

INFER = "/inference.GRPCInferenceService/ModelInfer"


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


def test_stock_client_gets_its_tensor_back(triton):
    result = triton.infer("identity", [floats()], request_id="r-1")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FLOATS)
    answer = result.get_response()
    assert (answer.id, answer.model_name, answer.model_version) == ("r-1", "identity", "1")


def test_strings_and_numbers_travel_together(triton):
    numbers = client.InferInput("INPUT0", [4], "INT32")
    numbers.set_data_from_numpy(np.arange(4, dtype=np.int32))
    words = client.InferInput("INPUT1", [2], "BYTES")
    words.set_data_from_numpy(np.array(["é", ""], dtype=np.object_))
    result = triton.infer("pair", [numbers, words])
    assert result.as_numpy("OUTPUT0").tolist() == [0, 1, 2, 3]
    assert result.as_numpy("OUTPUT1").tolist() == ["é".encode(), b""]


def test_only_the_outputs_asked_for_come_back(triton):
    numbers = client.InferInput("INPUT0", [4], "INT32")
    numbers.set_data_from_numpy(np.arange(4, dtype=np.int32))
    words = client.InferInput("INPUT1", [1], "BYTES")
    words.set_data_from_numpy(np.array([b"x"], dtype=np.object_))
    wanted = [client.InferRequestedOutput("OUTPUT1")]
    answer = triton.infer("pair", [numbers, words], outputs=wanted).get_response()
    assert [output.name for output in answer.outputs] == ["OUTPUT1"]


def test_liveness_readiness_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("identity")
    assert triton.is_model_ready("identity", "1")
    assert not triton.is_model_ready("identity", "7")
    assert not triton.is_model_ready("nobody")
    assert triton.get_server_metadata().name == "modelyard"
    metadata = triton.get_model_metadata("identity", "1")
    assert list(metadata.versions) == ["1"]
    assert list(metadata.inputs[0].shape) == [-1, 16]
    assert triton.get_model_config("identity").config.max_batch_size == 8


def test_statistics_count_what_was_answered(triton):
    before = triton.get_inference_statistics("identity").model_stats[0].inference_stats
    triton.infer("identity", [floats()])
    after = triton.get_inference_statistics("identity", "1").model_stats[0].inference_stats
    assert after.success.count == before.success.count + 1
    assert after.compute_infer.count == after.queue.count == after.success.count
    assert after.success.ns > before.success.ns


def test_statistics_of_all_models_come_without_a_name(triton):
    found = triton.get_inference_statistics().model_stats
    assert {one.name for one in found} == {"identity", "pair", "slow"}
    with pytest.raises(InferenceServerException, match="requested model 'nobody' is not available"):
        triton.get_inference_statistics("nobody")


def test_index_lists_states_and_reasons(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    rows = stub.RepositoryIndex(pb.RepositoryIndexRequest()).models
    assert ("broken", "UNAVAILABLE", "weights missing") in [
        (row.name, row.state, row.reason) for row in rows
    ]
    ready = stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True)).models
    assert {row.name for row in ready} == {"identity", "pair", "slow"}


def test_repository_control_is_refused_with_its_reason(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    unoffered = "'repository_name' specification is not supported"
    assert refusal(
        lambda: stub.RepositoryIndex(pb.RepositoryIndexRequest(repository_name="r"))
    ) == ("UNIMPLEMENTED", unoffered)
    assert refusal(
        lambda: stub.RepositoryModelLoad(
            pb.RepositoryModelLoadRequest(
                model_name="m", parameters={"confg": pb.ModelRepositoryParameter(string_param="")}
            )
        )
    ) == (
        "INVALID_ARGUMENT",
        "unrecognized load parameter 'confg'. Known are 'config' and 'file:<path>'",
    )
    code, text = refusal(
        lambda: stub.RepositoryModelUnload(
            pb.RepositoryModelUnloadRequest(
                model_name="m",
                parameters={"unload_dependents": pb.ModelRepositoryParameter(int64_param=1)},
            )
        )
    )
    assert code == "INVALID_ARGUMENT"
    assert text == "invalid value type for 'unload_dependents' parameter, expected bool_param."


def test_what_is_not_offered_is_unimplemented(triton):
    assert not triton.get_system_shared_memory_status().regions
    with pytest.raises(InferenceServerException, match="UNIMPLEMENTED"):
        triton.register_system_shared_memory("mine", "/mine", 64)


def _tensor(name="INPUT0", datatype="FP32", shape=(1, 16)):
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)


BAD = {
    "wrong name": (
        identity(inputs=[_tensor("NOPE")]),
        "INVALID_ARGUMENT",
        "[request id: <id_unknown>] unexpected inference input 'NOPE' for model 'identity'",
    ),
    "wrong dtype": (
        identity(inputs=[_tensor(datatype="INT32")]),
        "INVALID_ARGUMENT",
        "inference input 'INPUT0' data-type is 'INT32', but model 'identity' expects 'FP32'",
    ),
    "wrong shape": (
        identity(inputs=[_tensor(shape=(1, 15))]),
        "INVALID_ARGUMENT",
        "unexpected shape for input 'INPUT0' for model 'identity'. Expected [-1,16], got [1,15].",
    ),
    "wrong byte size": (
        identity(raw_input_contents=[FLOATS.tobytes()[:-4]]),
        "INVALID_ARGUMENT",
        "input byte size mismatch for input 'INPUT0' for model 'identity'. Expected 64, got 60",
    ),
    "missing input": (
        identity(inputs=[], raw_input_contents=[]),
        "INVALID_ARGUMENT",
        "expected 1 inputs but got 0 inputs for model 'identity'. Got input(s) [], but missing "
        "required input(s) ['INPUT0']. Please provide all required input(s).",
    ),
    "extra input": (
        identity(inputs=[_tensor(), _tensor("EXTRA")], raw_input_contents=[FLOATS.tobytes()] * 2),
        "INVALID_ARGUMENT",
        "unexpected inference input 'EXTRA' for model 'identity'",
    ),
    "duplicate input": (
        identity(inputs=[_tensor()] * 2, raw_input_contents=[FLOATS.tobytes()] * 2),
        "INVALID_ARGUMENT",
        "input 'INPUT0' already exists in request",
    ),
    "batch too large": (
        identity(inputs=[_tensor(shape=(9, 16))], raw_input_contents=[FLOATS.tobytes() * 9]),
        "INVALID_ARGUMENT",
        "inference request batch-size must be <= 8 for 'identity'",
    ),
    "unknown output": (
        identity(outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="NOPE")]),
        "INVALID_ARGUMENT",
        "unexpected inference output 'NOPE' for model 'identity'",
    ),
    "unknown model": (
        identity(model_name="nobody"),
        "NOT_FOUND",
        "Request for unknown model: 'nobody' is not found",
    ),
    "unknown version": (
        identity(model_version="9"),
        "NOT_FOUND",
        "Request for unknown model: 'identity' version 9 is not found",
    ),
    "version that is not ready": (
        identity(model_version="99"),
        "UNAVAILABLE",
        "Request for unknown model: 'identity' version 99 is not at ready state",
    ),
    "version that is no number": (
        identity(model_version="a"),
        "INVALID_ARGUMENT",
        "failed to get model version from specified version string 'a' (details: stol), version "
        "should be an integral value > 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_the_next_request_is_served(channel, case):
    stub = services.GRPCInferenceServiceStub(channel)
    message, code, text = BAD[case]
    got_code, got_text = refusal(lambda: stub.ModelInfer(message))
    assert got_code == code
    assert text in got_text
    assert stub.ModelInfer(identity()).raw_output_contents == [FLOATS.tobytes()]


def test_malformed_protobuf_is_the_clients_error_and_the_next_request_is_served(channel):
    raw = channel.unary_unary(INFER)
    code, text = refusal(lambda: raw(b"\x0a\xff\xff\xff\xff"))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("failed to parse the request as inference.ModelInferRequest: ")
    assert raw(identity().SerializeToString())


def test_the_id_is_in_front_of_the_error(channel):
    stub = services.GRPCInferenceServiceStub(channel)
    bad = identity("42", inputs=[_tensor("NOPE")])
    assert refusal(lambda: stub.ModelInfer(bad))[1].startswith("[request id: 42] ")


def test_a_decoupled_model_is_refused_by_the_unary_call():
    decoupled = IDENTITY + "model_transaction_policy { decoupled: true }"
    with open_listener(decoupled) as listener, grpc.insecure_channel(listener.url) as channel:
        stub = services.GRPCInferenceServiceStub(channel)
        assert refusal(lambda: stub.ModelInfer(identity())) == (
            "UNIMPLEMENTED",
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
        )
        answers = list(stub.ModelStreamInfer(iter([identity("1")])))
        assert [answer.infer_response.id for answer in answers] == ["1"]


def test_a_message_over_the_limit_is_refused_and_the_next_is_served():
    with (
        open_listener(grpc_max_message_size=1000) as listener,
        grpc.insecure_channel(listener.url) as channel,
    ):
        stub = services.GRPCInferenceServiceStub(channel)
        big = identity(raw_input_contents=[b"\0" * 2000])
        assert refusal(lambda: stub.ModelInfer(big))[0] == "RESOURCE_EXHAUSTED"
        assert stub.ModelInfer(identity()).outputs


def executing(listener: Open) -> int:
    served = listener.served("slow")
    return served.scheduler.inflight() - served.counters.pending


def test_a_request_whose_client_has_gone_is_dropped_and_counted(listener, channel):
    counters = listener.served("slow").counters
    before = listener.on_loop(lambda: counters.failure["CANCELED"])
    stub = services.GRPCInferenceServiceStub(channel)
    first = stub.ModelInfer.future(slow("first"))
    listener.wait_for(lambda: executing(listener) == 1, "the first request to execute")
    second = stub.ModelInfer.future(slow("second"))
    listener.wait_for(lambda: counters.pending == 1, "the second request to be queued")
    second.cancel()
    assert first.result().id == "first"
    listener.wait_for(
        lambda: counters.failure["CANCELED"] == before + 1, "the cancelled request to be dropped"
    )
    listener.wait_for(
        lambda: listener.served("slow").scheduler.inflight() == 0, "nothing in flight"
    )


def test_a_late_request_is_answered_with_deadline_exceeded(listener, channel):
    stub = services.GRPCInferenceServiceStub(channel)
    assert refusal(lambda: stub.ModelInfer(slow("late"), timeout=0.05))[0] == "DEADLINE_EXCEEDED"
    listener.wait_for(
        lambda: listener.served("slow").scheduler.inflight() == 0, "nothing in flight"
    )


def test_health_reports_readiness():
    kind = health_pb2.HealthCheckResponse
    with open_listener() as listener, grpc.insecure_channel(listener.url) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService"):
            asked = health_pb2.HealthCheckRequest(service=service)
            assert health.Check(asked).status == kind.SERVING
        unknown = health_pb2.HealthCheckRequest(service="nobody")
        assert refusal(lambda: health.Check(unknown))[0] == "NOT_FOUND"
        assert next(iter(health.Watch(unknown))).status == kind.SERVICE_UNKNOWN
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == kind.SERVING
        listener.on_loop(listener.dataplane.lifecycle.begin_stopping)
        assert next(watch).status == kind.NOT_SERVING
        assert health.Check(health_pb2.HealthCheckRequest()).status == kind.NOT_SERVING
        stub = services.GRPCInferenceServiceStub(channel)
        assert refusal(lambda: stub.ModelInfer(identity()))[0] == "UNAVAILABLE"
        watch.cancel()


def test_stopping_answers_what_is_in_flight_and_ends_idle_streams():
    with open_listener(SLOW) as listener, grpc.insecure_channel(listener.url) as channel:
        stub = services.GRPCInferenceServiceStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        asked: queue.Queue[pb.ModelInferRequest] = queue.Queue()
        answers = stub.ModelStreamInfer(iter(asked.get, None))
        asked.put(slow("1"))
        unary = stub.ModelInfer.future(slow("2"))
        listener.wait_for(
            lambda: listener.served("slow").scheduler.inflight() == 2, "both in flight"
        )
        listener.on_loop(lambda: listener.listener.stop(10.0))
        assert unary.result().id == "2"
        assert next(answers).infer_response.id == "1"
        assert refusal(lambda: next(answers))[0] == "UNAVAILABLE"
        assert [one.status for one in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        asked.put(None)


def test_a_port_that_is_taken_is_named_with_its_flag():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"gRPC on 127\.0\.0\.1 port {port}: .*--grpc-port"):
            refused(port)


def refused(port: int) -> None:
    import asyncio

    from server.buffers import BufferBudget
    from server.dataplane import DataPlane
    from server.grpc.service import start
    from server.process.loop_lag import LoopActivity
    from server.settings.table import Settings
    from support.grpc import Shelf

    dataplane, settings = DataPlane(Shelf([]), "m", "0"), Settings(grpc_port=port)
    asyncio.run(start(dataplane, settings, None, BufferBudget(1 << 20), LoopActivity()))
