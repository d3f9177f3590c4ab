"""One copy of a python model, in its worker: requests in, responses out, everything checked.

A batch comes from `backends.host.worker`; user code sees each request's tensors as views of the
server's shared memory, and what it returns is held against the config before anyone receives it.
"""

import asyncio
import inspect
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any

import numpy as np

from backends.errors import ExecutionFailed, FaultyModel, ModelError
from backends.python_api import InferenceRequest, InferenceResponse, Tensor, TritonError
from backends.seam import Batch, Member, Outcome, Result
from repository.model import ModelVersion
from repository.tensors import BY_CONFIG, BY_DTYPE, Array

_CODES = {
    getattr(TritonError, name): name
    for name in (
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    )
}
_OBJECT = np.dtype(np.object_)


class _WrongAnswer(Exception):
    """What `execute` returned is not what Triton's contract asks for."""


class PythonInstance:
    """A `TritonPythonModel` behind the `Instance` seam."""

    def __init__(
        self, version: ModelVersion, model: Any, name: str, device: str, cores: int
    ) -> None:
        """`version.config` is completed; `model` is initialised."""
        self.device = device
        self.cores = cores
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self._version = version
        self._model = model
        self._name = name
        self._outputs = {
            tensor.name: BY_CONFIG[tensor.data_type].dtype for tensor in version.config.output
        }

    def execute(self, batch: Batch) -> Outcome:
        """Run one batch; raises `ExecutionFailed` with Triton's text when user code fails."""
        started = perf_counter_ns()
        requests = [self._request(member) for member in batch.members]
        built = perf_counter_ns()
        try:
            responses = self._responses(requests)
            ran = perf_counter_ns()
            results = [
                self._result(response, member.wanted, rows if batch.batched else None)
                for response, member, rows in zip(responses, batch.members, batch.rows, strict=True)
            ]
        except _WrongAnswer as error:
            raise ExecutionFailed(self._failed(str(error))) from None
        except Exception as error:
            text = describe(error, self._version.path)
            raise ExecutionFailed(self._failed(text)) from error
        said = {index: response.facts for index, response in enumerate(responses) if response.facts}
        return Outcome(results, built - started, ran - built, perf_counter_ns() - ran, said)

    def close(self) -> None:
        """Let the model finalize; what it raises is printed."""
        self.ready = False
        if not hasattr(self._model, "finalize"):
            return
        try:
            self._model.finalize()
        except Exception:  # noqa: BLE001 - the seam: closing must not raise
            traceback.print_exc()

    def _request(self, member: Member, **facts: Any) -> InferenceRequest:
        return InferenceRequest(
            member.id,
            member.correlation_id,
            [Tensor(name, array) for name, array in member.inputs.items()],
            member.wanted or tuple(self._outputs),
            self._version.name,
            self._version.number,
            timeout=member.timeout_us,
            parameters=member.parameters,
            **{"cancelled": getattr(member, "is_cancelled", None), **facts},
        )

    def _responses(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        responses = self._model.execute(requests)
        if inspect.iscoroutine(responses):
            responses = asyncio.run(responses)
        if not isinstance(responses, list):
            raise _WrongAnswer(
                f"Expected a list in the execute return, found type '{type(responses)}'."
            )
        if len(responses) != len(requests):
            raise _WrongAnswer(
                "Number of InferenceResponse objects do not match the number of InferenceRequest "
                f"objects. InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) "
                f"size is:{len(responses)}\n"
            )
        for response in responses:
            if not isinstance(response, InferenceResponse):
                raise _WrongAnswer(
                    "Expected an 'InferenceResponse' object in the execute function return list, "
                    f"found type '{type(response)}'."
                )
        return responses

    def _result(
        self, response: InferenceResponse, wanted: Collection[str], rows: int | None
    ) -> Result:
        error = response.error()
        if error is not None:
            return ModelError(error.message(), _CODES[error.code()])
        wanted = wanted or self._outputs
        outputs: dict[str, Array] = {}
        for tensor in response.output_tensors():
            try:
                array = self._checked(tensor, rows)
            except FaultyModel as fault:
                return fault
            if tensor.name() in wanted:
                outputs[tensor.name()] = array
        return outputs

    def _checked(self, tensor: Tensor, rows: int | None) -> Array:
        name = tensor.name()
        want = self._outputs.get(name)
        if want is None:
            known = ", ".join(f"'{known}'" for known in self._outputs)
            raise self._fault(f"unknown output '{name}'; its config has {known}")
        array = _as_protocol(tensor.as_numpy())
        if array.dtype != want:
            raise self._fault(
                f"output '{name}' as {BY_DTYPE[array.dtype].name}, but its config says "
                f"{BY_DTYPE[want].name}"
            )
        if rows is not None and array.shape[:1] != (rows,):
            shape = ",".join(map(str, array.shape))
            raise self._fault(
                f"output '{name}' with shape [{shape}] for {rows} row{'s' * (rows != 1)}; with "
                "max_batch_size > 0 its first dimension must be the number of rows sent"
            )
        return array

    def _fault(self, what: str) -> FaultyModel:
        return FaultyModel(
            f"model '{self._version.name}' version {self._version.number} is faulty: it returned "
            + what
        )

    def _failed(self, text: str) -> str:
        return (
            f"Failed to process the request(s) for model instance '{self._name}', message: {text}"
        )


def describe(error: BaseException, folder: Path) -> str:
    """An exception of user code: its type and text, then file, line and function of the frames
    in the model's own folder, innermost first, as Triton prints them."""
    lines = [f"{type(error).__name__}: {error}", "", "At:"]
    frames = _own_frames(error.__traceback__, folder)
    if isinstance(error, SyntaxError) and error.filename:
        frames = [f"{_short(Path(error.filename), folder)}({error.lineno}): <module>"]
    return "\n".join([*lines, *(f"  {frame}" for frame in frames)]) if frames else lines[0]


def _own_frames(trace: TracebackType | None, folder: Path) -> list[str]:
    return [
        f"{_short(Path(frame.filename), folder)}({frame.lineno}): {frame.name}"
        for frame in reversed(traceback.extract_tb(trace))
        if Path(frame.filename).is_relative_to(folder)
    ][:5]


def _short(file: Path, folder: Path) -> str:
    """The path from the model's folder on: no client needs to know where the server keeps it."""
    if not file.is_relative_to(folder):
        return file.name
    return str(Path(folder.parent.name) / folder.name / file.relative_to(folder))


def _as_protocol(array: Array) -> Array:
    """The array in the machine's byte order; strings as `bytes` objects."""
    if array.dtype.kind == "S":
        array = array.astype(_OBJECT)
    if array.dtype == _OBJECT:
        return _as_bytes(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _as_bytes(array: Array) -> Array:
    flat: Sequence[Any] = array.ravel().tolist()
    if all(type(element) is bytes for element in flat):
        return array
    converted = np.empty(len(flat), _OBJECT)
    converted[:] = [
        bytes(element) if isinstance(element, bytes) else str(element).encode() for element in flat
    ]
    return converted.reshape(array.shape)
