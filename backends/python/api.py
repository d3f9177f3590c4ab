"""What python models import as `triton_python_backend_utils`: tensors, requests, responses.

Names and meanings are Triton's (its `python_backend`); `backends.python.backend` makes this module
importable under Triton's name in the worker.
"""

from collections.abc import Sequence
from typing import Any

from backends.python.config import Config, ModelConfig
from backends.python.control import is_model_ready, load_model, unload_model
from backends.python.logger import Logger
from backends.python.metrics import CustomMetric as Metric
from backends.python.metrics import PythonMetricFamily as MetricFamily
from backends.python.model_errors import TritonError, TritonModelException
from backends.python.request import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    PreferredMemory,
)
from backends.python.response import InferenceResponse
from backends.python.single import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from backends.python.tensor import Tensor, numpy_to_triton_type
from repository.config.tensors import BY_CONFIG, DATA_TYPES

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_MEMORY_CPU = PreferredMemory.CPU
TRITONSERVER_MEMORY_GPU = PreferredMemory.GPU

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_STRING" if row.name == "BYTES" else f"TYPE_{row.name}": row.dtype.type
    for row in DATA_TYPES
}


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The request's input of that name; None if it has none."""
    return _tensor(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The response's output of that name; None if it has none."""
    return _tensor(inference_response.output_tensors(), name)


def get_input_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an input in a config dictionary; None if it has none of that name."""
    return _config(model_config, "input", name)


def get_output_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an output in a config dictionary; None if it has none of that name."""
    return _config(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Config) -> bool:
    """Whether a config dictionary makes its model decoupled."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a config's data type: "TYPE_FP32" → `np.float32`."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """The numpy type of a data type's number."""
    return BY_CONFIG[data_type].dtype.type


def _tensor(tensors: Sequence[Tensor], name: str) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def _config(model_config: Config, kind: str, name: str) -> Config | None:
    found: Config | None = next(
        (tensor for tensor in model_config.get(kind, ()) if tensor["name"] == name), None
    )
    return found
