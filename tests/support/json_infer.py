"""JSON infer requests against a signature, and the responses to them."""

import json
from typing import Any

from google.protobuf import text_format

from repository.config.tensors import DATA_TYPES, Array
from repository.model import ModelConfig
from schedulers.request import InferResponse
from server.codec.json_infer import decode
from server.codec.output_format import InferBody
from server.signature import Signature, compile_signature

NUMERIC = [row.name for row in DATA_TYPES if row.name != "BYTES"]


def signature(datatype: str = "FP32", dims: str = "-1", max_batch: int = 0) -> Signature:
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    text = f"""
        name: "m" max_batch_size: {max_batch}
        input {{ name: "X" data_type: {kind} dims: [{dims}] }}
        output {{ name: "Y" data_type: {kind} dims: [{dims}] }}
    """
    return compile_signature(text_format.Parse(text, ModelConfig()), 1)


def ask(document: Any, model: Signature, blob: bytes | None = None, depth: int = 100) -> InferBody:
    header = document if isinstance(document, bytes) else json.dumps(document).encode()
    length = None if blob is None else len(header)
    return decode(header + (blob or b""), length, model, depth)


def tensor(**changes: Any) -> dict[str, Any]:
    entry = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1.5, 2]}
    entry.update(changes)
    return {key: value for key, value in entry.items() if value is not None}


def response(array: Array) -> InferResponse:
    return InferResponse("", "m", 1, {"Y": array})


def bits(array: Array) -> bytes:
    return array.tobytes()
