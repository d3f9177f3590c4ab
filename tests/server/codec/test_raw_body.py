"""Raw-body requests: the shape deduced from the model, Triton's words when it cannot be."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from google.protobuf import text_format

from repository.model import ModelConfig
from server.codec.output_format import InferBody
from server.codec.raw_body import decode_raw
from server.errors import InvalidRequest
from server.signature import compile_signature
from support.http import ask
from support.server import Server, running, write_identity


def raw(config: str, body: bytes) -> InferBody:
    signature = compile_signature(text_format.Parse(f'name: "m" {config}', ModelConfig()), 1)
    return decode_raw(body, signature)


def refusal(config: str, body: bytes = b"") -> str:
    with pytest.raises(InvalidRequest) as caught:
        raw(config, body)
    return str(caught.value)


def test_the_open_dimension_is_what_the_body_leaves() -> None:
    asked = raw(
        'max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: [2, -1, 3] }', b"\0" * 96
    )
    assert asked.inputs["X"].shape == (1, 2, 4, 3)
    assert asked.rows == 1
    assert asked.form.binary is True


def test_without_a_batch_dimension_the_shape_is_the_models() -> None:
    asked = raw('input { name: "X" data_type: TYPE_INT16 dims: [2, 2] }', b"\1\0\2\0\3\0\4\0")
    np.testing.assert_array_equal(asked.inputs["X"], [[1, 2], [3, 4]])


def test_a_raw_string_is_the_whole_body() -> None:
    asked = raw(
        'max_batch_size: 4 input { name: "X" data_type: TYPE_STRING dims: 1 }', b"any\0text"
    )
    assert asked.inputs["X"].tolist() == [[b"any\0text"]]


def test_several_inputs_cannot_be_deduced() -> None:
    one = 'input { name: "%s" data_type: TYPE_FP32 dims: 1 }'
    assert refusal(" ".join(one % name for name in "XYZ")) == (
        "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but "
        "got 3 inputs in 'm' model configuration"
    )


def test_two_open_dimensions_cannot_be_deduced() -> None:
    assert refusal('input { name: "X" data_type: TYPE_FP32 dims: [-1, -1] }') == (
        "[request id: <id_unknown>] The shape of the raw input 'X' can not be deduced because "
        "there are more than one variable-sized dimension"
    )


@pytest.mark.parametrize("dims", ["[-1]", "[2]"])
def test_strings_must_be_one(dims: str) -> None:
    assert refusal(f'input {{ name: "X" data_type: TYPE_STRING dims: {dims} }}') == (
        "[request id: <id_unknown>] For BYTE datatype raw input 'X', the model must have input "
        "shape [1]"
    )


def test_bytes_that_fill_no_whole_row_are_refused() -> None:
    assert refusal('input { name: "X" data_type: TYPE_FP32 dims: [-1, 2] }', b"\0" * 12) == (
        "[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'm'. "
        "Expected 8, got 12"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    with running(repository, allow_grpc=False) as one:
        yield one


def test_a_raw_request_over_http_is_answered_in_binary(server: Server) -> None:
    array = np.arange(5, dtype=np.float32)
    answer = ask(
        server,
        "POST",
        "/v2/models/echo/infer",
        array.tobytes(),
        inference_header_content_length="0",
    )
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert output["shape"] == [1, 5]
    np.testing.assert_array_equal(np.frombuffer(answer.body[length:], np.float32), array)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("abc", "Unable to parse Inference-Header-Content-Length, got: abc"),
        ("-1", "Unable to parse Inference-Header-Content-Length, got: -1"),
        ("99", "inference header size should be in range (0, 2), got: 99"),
    ],
)
def test_a_wrong_header_length_is_refused(server: Server, length: str, text: str) -> None:
    answer = ask(
        server, "POST", "/v2/models/echo/infer", b"{}", inference_header_content_length=length
    )
    assert (answer.status, answer.error) == (400, text)
