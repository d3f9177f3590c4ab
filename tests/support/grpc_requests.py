"""Requests over gRPC to the models of `support.grpc`."""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2 as pb

FLOATS = np.arange(16, dtype=np.float32)[None]


def floats(array=FLOATS, name="INPUT0"):
    tensor = client.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def identity(request_id="", **rest) -> pb.ModelInferRequest:
    """A good request for `identity`, with `rest` changed."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 16])
    fields = {
        "model_name": "identity",
        "id": request_id,
        "inputs": [tensor],
        "raw_input_contents": [FLOATS.tobytes()],
        **rest,
    }
    return pb.ModelInferRequest(**fields)


def slow(request_id: str) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, 1])
    return pb.ModelInferRequest(
        model_name="slow", id=request_id, inputs=[tensor], raw_input_contents=[b"\0\0\0\0"]
    )


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code().name, refused.value.details()
