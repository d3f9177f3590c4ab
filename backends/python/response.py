"""What a python model answers with, and what it is answered when it calls another model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from backends.python.model_errors import TritonError, TritonModelException
from backends.python.tensor import Tensor


class InferenceResponse:
    """What a model answers one request with: tensors, or an error."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TritonModelException("output_tensors must be a list of pb_utils.Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise TritonModelException("error must be a pb_utils.TritonError")
        self._tensors = list(output_tensors)
        self._error = error
        self.facts = _sendable(parameters) if parameters else {}

    def output_tensors(self) -> list[Tensor]:
        """The tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether this is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one."""
        return self._error

    def parameters(self) -> str:
        """The response's parameters, as JSON text."""
        return json.dumps(self.facts)


def _sendable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy; raises `TritonModelException` for what the protocol cannot carry."""
    for key, value in parameters.items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                f"response parameter {key!r} is {value!r}; keys must be strings, values bool, "
                "int, float or str"
            )
    return dict(parameters)
