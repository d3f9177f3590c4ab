"""Classification: the best elements of an output as `value:index:label`."""

from collections.abc import Iterator
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from google.protobuf import text_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from repository.config.tensors import BY_NAME
from repository.model import ModelConfig
from schedulers.request import InferResponse
from server.admit import MOST_STRINGS
from server.codec import grpc_infer
from server.codec.classification import classified, top
from server.errors import InvalidRequest
from server.signature import Signature, compile_signature
from support.server import Server, running, write_identity

CONFIG = """
name: "zoo" backend: "identity" max_batch_size: 4
input {{ name: "INPUT0" data_type: {0} dims: 4 }}
output {{ name: "OUTPUT0" data_type: {0} dims: 4 label_filename: "labels.txt" }}
"""
LABELS = ("cat", "", "dog")


def signature(kind: str = "FP32", max_batch: int = 0, labels: tuple[str, ...] = ()) -> Signature:
    name = "TYPE_STRING" if kind == "BYTES" else f"TYPE_{kind}"
    text = f"""
        name: "m" max_batch_size: {max_batch}
        output {{ name: "Y" data_type: {name} dims: [-1] }}
    """
    config = text_format.Parse(text, ModelConfig())
    return compile_signature(config, 1, {"Y": labels})


def best(model: Signature, count: int, array: Any) -> Any:
    response = InferResponse("", "m", 1, {"Y": array, "Z": array})
    outputs = classified(response, {"Y": top(model, "Y", count)}).outputs
    assert outputs["Z"] is array
    return outputs["Y"]


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        ("INT8", [-3, 127, 5], ["127:1", "5:2", "-3:0"]),
        ("INT64", [-(2**63), 2**63 - 1, 0], [f"{2**63 - 1}:1", "0:2", f"{-(2**63)}:0"]),
        ("UINT8", [0, 200, 100], ["200:1", "100:2", "0:0"]),
        ("UINT64", [1, 2**64 - 1, 0], [f"{2**64 - 1}:1", "1:0", "0:2"]),
        ("FP32", [0.1, 0.9, 1e-9], ["0.900000:1", "0.100000:0", "0.000000:2"]),
        ("FP64", [1e21, -0.5, 2], ["1000000000000000000000.000000:0", "2.000000:2", "-0.500000:1"]),
    ],
)
def test_values_are_written_as_cpp_writes_them(
    kind: str, values: list[float], texts: list[str]
) -> None:
    found = best(signature(kind), 9, np.array(values, BY_NAME[kind].dtype))
    assert found.tolist() == [text.encode() for text in texts]
    assert found.shape == (3,)


def test_infinities_and_nan_have_their_place() -> None:
    found = best(signature(), 3, np.array([np.nan, -1, np.inf], np.float32))
    assert found.tolist() == [b"inf:2", b"-1.000000:1", b"nan:0"]


def test_equal_values_come_by_index() -> None:
    assert best(signature("INT32"), 2, np.array([7, 1, 7, 7], np.int32)).tolist() == [
        b"7:0",
        b"7:2",
    ]


@pytest.mark.parametrize("max_batch", [0, 4])
def test_more_classes_than_an_answer_may_have_are_refused(max_batch: int) -> None:
    flat = np.zeros(MOST_STRINGS + 2, np.int8)
    array = flat.reshape(2, -1) if max_batch else flat
    with pytest.raises(InvalidRequest, match=f"output 'Y' are too many: .* {MOST_STRINGS} of them"):
        best(signature("INT8", max_batch), 10**30, array)
    assert best(signature("INT8", max_batch), 1, array).size == (2 if max_batch else 1)


def test_every_row_of_a_batch_has_its_own_best() -> None:
    array = np.array([[1, 2, 3], [6, 5, 4]], np.int16)
    found = best(signature("INT16", max_batch=8), 2, array)
    assert found.tolist() == [[b"3:2", b"2:1"], [b"6:0", b"5:1"]]


def test_without_a_batch_all_dimensions_are_one_row() -> None:
    assert best(signature("INT16"), 1, np.array([[1, 2], [4, 3]], np.int16)).tolist() == [b"4:2"]


def test_a_label_follows_where_there_is_one() -> None:
    found = best(signature("UINT8", labels=LABELS), 4, np.array([4, 3, 2, 1], np.uint8))
    assert found.tolist() == [b"4:0:cat", b"3:1", b"2:2:dog", b"1:3"]


@pytest.mark.parametrize("kind", ["FP16", "BF16", "BOOL", "BYTES"])
def test_types_without_classes_are_refused(kind: str) -> None:
    text = f"class result not available for output due to unsupported type '{kind}'"
    with pytest.raises(InvalidRequest, match=text):
        top(signature(kind), "Y", 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    folder = write_identity(repository, "zoo", config=CONFIG.format("TYPE_FP32"))
    (folder / "labels.txt").write_text("cat\n\nhund\nä\n")
    half = CONFIG.format("TYPE_FP16").replace("zoo", "half").replace('"labels.txt"', '""')
    write_identity(repository, "half", config=half)
    with running(repository) as one:
        yield one


SCORES = np.array([[0.1, 0.2, 0.3, 0.4], [4, 3, 2, 1]], np.float32)
TOP_TWO = [["0.400000:3:ä", "0.300000:2:hund"], ["4.000000:0:cat", "3.000000:1"]]


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_gets_classes_over_rest(server: Server, binary: bool) -> None:
    with tritonclient.http.InferenceServerClient(server.http) as client:
        wanted = tritonclient.http.InferRequestedOutput("OUTPUT0", binary, class_count=2)
        tensor = tritonclient.http.InferInput("INPUT0", [2, 4], "FP32")
        tensor.set_data_from_numpy(SCORES)
        result = client.infer("zoo", [tensor], outputs=[wanted])
        assert result.get_output("OUTPUT0")["datatype"] == "BYTES"
        assert decoded(result.as_numpy("OUTPUT0")) == TOP_TWO


def test_tritonclient_gets_classes_over_grpc(server: Server) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        wanted = tritonclient.grpc.InferRequestedOutput("OUTPUT0", class_count=2)
        tensor = tritonclient.grpc.InferInput("INPUT0", [2, 4], "FP32")
        tensor.set_data_from_numpy(SCORES)
        for _ in range(2):  # a message seen before is answered as the first time
            result = client.infer("zoo", [tensor], outputs=[wanted])
            assert result.get_output("OUTPUT0").datatype == "BYTES"
            assert decoded(result.as_numpy("OUTPUT0")) == TOP_TWO


def decoded(texts: Any) -> list[list[str]]:
    return [
        [text if isinstance(text, str) else text.decode() for text in row] for row in texts.tolist()
    ]


@pytest.mark.parametrize("kind", [tritonclient.http, tritonclient.grpc], ids=["rest", "grpc"])
def test_half_precision_has_no_classes_on_either_wire(server: Server, kind: Any) -> None:
    address = server.http if kind is tritonclient.http else server.grpc
    with kind.InferenceServerClient(address) as client:
        wanted = kind.InferRequestedOutput("OUTPUT0", class_count=1)
        tensor = kind.InferInput("INPUT0", [1, 4], "FP16")
        tensor.set_data_from_numpy(np.zeros((1, 4), np.float16))
        with pytest.raises(InferenceServerException, match="unsupported type 'FP16'"):
            client.infer("half", [tensor], outputs=[wanted])


@pytest.mark.parametrize("value", [-1, "2", True, 1.5])
def test_a_count_over_rest_is_a_whole_number(server: Server, value: object) -> None:
    output = {"name": "OUTPUT0", "parameters": {"classification": value}}
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    status, body = server.post("/v2/models/zoo/infer", {"inputs": [entry], "outputs": [output]})
    assert status == 500
    assert b"Unable to parse 'classification': attempt to access JSON non-unsigned-integer" in body


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (pb.InferParameter(string_param="2"), "invalid value type for 'classification' parameter"),
        (pb.InferParameter(int64_param=0), "invalid value for 'classification' parameter"),
        (pb.InferParameter(int64_param=-1), "invalid value for 'classification' parameter"),
    ],
)
def test_a_count_over_grpc_is_an_integer_above_zero(
    parameter: pb.InferParameter, text: str
) -> None:
    message = pb.ModelInferRequest(model_name="m")
    message.outputs.add(name="Y").parameters["classification"].CopyFrom(parameter)
    with pytest.raises(InvalidRequest, match=text):
        grpc_infer.decode(message, signature())


def test_tritonclient_gets_classes_over_a_stream(server: Server) -> None:
    answers: Queue[Any] = Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        wanted = tritonclient.grpc.InferRequestedOutput("OUTPUT0", class_count=2)
        tensor = tritonclient.grpc.InferInput("INPUT0", [2, 4], "FP32")
        tensor.set_data_from_numpy(SCORES)
        client.async_stream_infer("zoo", [tensor], outputs=[wanted])
        result, error = answers.get(timeout=60)
        client.stop_stream()
    assert error is None
    assert decoded(result.as_numpy("OUTPUT0")) == TOP_TWO


def test_classes_and_shared_memory_exclude_each_other(server: Server) -> None:
    parameters = {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 4}
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    output = {"name": "OUTPUT0", "parameters": parameters}
    status, _ = server.post("/v2/models/zoo/infer", {"inputs": [entry], "outputs": [output]})
    assert status in (400, 501)
