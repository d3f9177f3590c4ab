"""One copy of a python model, in its worker: requests in, responses out, everything checked.

A batch comes from `backends.process.worker`; user code sees each request's tensors as views of the
server's shared memory, and what it returns is held against the config before anyone receives it.
"""

import inspect
import os
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from backends.errors import BackendError, ExecutionFailed, FaultyModel, ModelError, Reschedule
from backends.python.coroutine_loop import CoroutineLoop
from backends.python.logger import Logger
from backends.python.model_errors import TritonError
from backends.python.request import (
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    SentResponse,
)
from backends.python.response import InferenceResponse
from backends.python.single import MORE_THAN_ONE, SingleResponseSender
from backends.python.tensor import Tensor, protocol_array
from backends.seam import Batch, BatchResult, Member, Result
from repository.config.tensors import BY_CONFIG, BY_DTYPE, Array
from repository.model import ModelVersion

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
        self._coroutines: CoroutineLoop | None = None
        if hasattr(model, "is_ready"):
            self.check_ready = self._is_ready
        self._outputs = {
            tensor.name: BY_CONFIG[tensor.data_type].dtype for tensor in version.config.output
        }

    def execute(self, batch: Batch) -> BatchResult:
        """Run one batch; raises `ExecutionFailed` with Triton's text when user code fails."""
        started = perf_counter_ns()
        requests = [self._request(member) for member in batch.members]
        built = perf_counter_ns()
        try:
            responses = self._responses(requests)
            del requests  # a sender that the model has dropped is to be noticed
            answers = [self._waited(response) for response in responses]
            ran = perf_counter_ns()
            results = [
                self._result(answer, member.requested_outputs, rows if batch.batched else None)
                for answer, member, rows in zip(answers, batch.members, batch.rows, strict=True)
            ]
        except _WrongAnswer as error:
            raise ExecutionFailed(self._failed(str(error))) from None
        except Exception as error:
            text = describe(error, self._version.path)
            raise ExecutionFailed(self._failed(text)) from error
        of_members = {
            index: answer.facts
            for index, answer in enumerate(answers)
            if isinstance(answer, InferenceResponse) and answer.facts
        }
        return BatchResult(
            results, built - started, ran - built, perf_counter_ns() - ran, of_members
        )

    def _is_ready(self) -> bool:
        """What the model says of itself; anything but a bool is False, and printed."""
        try:
            answer = self._model.is_ready()
            if inspect.iscoroutine(answer):
                answer = self.coroutines().run(answer)
        except Exception:  # noqa: BLE001 - user code
            traceback.print_exc()
            return False
        if not isinstance(answer, bool):
            Logger.log_error(f"is_ready must return a bool, not {type(answer).__name__}")
            return False
        return answer

    def close(self) -> None:
        """Let the model finalize; what it raises is printed."""
        self.ready = False
        if self._coroutines is not None:
            self._coroutines.close()
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
            member.requested_outputs or tuple(self._outputs),
            self._version.name,
            self._version.number,
            timeout=member.timeout_us,
            flags=getattr(member, "flags", 0),
            parameters=member.parameters,
            trace=InferenceTrace(getattr(member, "cause", -1)),
            **{
                "cancelled": getattr(member, "is_cancelled", None),
                "make_sender": SingleResponseSender,
                **facts,
            },
        )

    def _responses(self, requests: list[InferenceRequest]) -> "Sequence[Answer]":
        """What the model returned for each request, or what it sends for it instead.

        When `execute` fails, what was sent before stays sent, and the others fail with it."""
        try:
            returned = self._model.execute(requests)
            if inspect.iscoroutine(returned):
                returned = self.coroutines().run(returned)
        except Exception as error:
            sent = [request.sent for request in requests]
            if not any(one is not None and one.response is not None for one in sent):
                raise
            failed = TritonError(self._failed(describe(error, self._version.path)))
            return [
                one.response
                if one is not None and one.response is not None
                else InferenceResponse(error=failed)
                for one in sent
            ]
        return self._checked_answers(requests, returned)

    def _checked_answers(
        self, requests: list[InferenceRequest], returned: Any
    ) -> "Sequence[Answer]":
        if returned is None and any(map(_has_no_response, requests)):
            returned = [None] * len(requests)
        if not isinstance(returned, list):
            raise _WrongAnswer(
                f"Expected a list in the execute return, found type '{type(returned)}'."
            )
        if len(returned) != len(requests):
            raise _WrongAnswer(
                "Number of InferenceResponse objects do not match the number of InferenceRequest "
                f"objects. InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) "
                f"size is:{len(returned)}\n"
            )
        return [
            _answer(request, response) for request, response in zip(requests, returned, strict=True)
        ]

    def _waited(self, answer: "Answer") -> InferenceResponse | BackendError:
        """The response itself. A model that never ends is ended by the limit of executions."""
        if not isinstance(answer, SentResponse):
            return answer
        answer.wait()
        if answer.response is None:
            return FaultyModel(
                f"model '{self._version.name}' version {self._version.number} is faulty: it "
                "dropped the response sender of a request without sending a response"
            )
        return answer.response

    def coroutines(self) -> CoroutineLoop:
        """Where the coroutines of user code run, all of them."""
        if self._coroutines is None:
            self._coroutines = CoroutineLoop()
        return self._coroutines

    def _result(
        self,
        response: InferenceResponse | BackendError,
        output_names: Collection[str],
        rows: int | None,
    ) -> Result:
        if isinstance(response, BackendError):
            return response
        error = response.error()
        if error is not None:
            return ModelError(error.message(), _CODES[error.code()])
        output_names = output_names or self._outputs
        outputs: dict[str, Array] = {}
        for tensor in response.output_tensors():
            try:
                array = self._checked(tensor, rows)
            except FaultyModel as fault:
                return fault
            if tensor.name() in output_names:
                outputs[tensor.name()] = array
        return outputs

    def _checked(self, tensor: Tensor, rows: int | None) -> Array:
        name = tensor.name()
        want = self._outputs.get(name)
        if want is None:
            there = ", ".join(f"'{there}'" for there in self._outputs)
            raise self._fault(f"unknown output '{name}'; its config has {there}")
        array = protocol_array(tensor.as_numpy())
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


def _has_no_response(request: InferenceRequest) -> bool:
    """Whether `execute` may return nothing for it."""
    rescheduled = request.release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
    return rescheduled or request.sent is not None


Answer = InferenceResponse | SentResponse | Reschedule
"""What a model returned for a request, what it sends for it, or that it wants it once more."""


def _answer(request: InferenceRequest, response: Any) -> Answer:
    if response is None and request.release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
        return Reschedule()
    sent = request.sent
    if response is None and sent is not None:
        return sent
    if not isinstance(response, InferenceResponse):
        raise _WrongAnswer(
            "Expected an 'InferenceResponse' object in the execute function return list, "
            f"found type '{type(response)}'."
        )
    if sent is not None and sent.response is not None:
        raise _WrongAnswer(MORE_THAN_ONE)
    return response


def describe(error: BaseException, folder: Path) -> str:
    """An exception of user code: its type and text, then file, line and function of the frames
    in the model's own folder, innermost first, as Triton prints them."""
    lines = [f"{type(error).__name__}: {error}", "", "At:"]
    folder = _absolute(folder)
    frames = _own_frames(error.__traceback__, folder)
    if isinstance(error, SyntaxError) and error.filename:
        frames = [f"{_short(_absolute(error.filename), folder)}({error.lineno}): <module>"]
    return "\n".join([*lines, *(f"  {frame}" for frame in frames)]) if frames else lines[0]


def _own_frames(trace: TracebackType | None, folder: Path) -> list[str]:
    return [
        f"{_short(_absolute(frame.filename), folder)}({frame.lineno}): {frame.name}"
        for frame in reversed(traceback.extract_tb(trace))
        if _absolute(frame.filename).is_relative_to(folder)
    ][:5]


def _absolute(path: str | Path) -> Path:
    """As imports write it, whose paths are absolute though the repository's may not be; normal."""
    return Path(os.path.abspath(path))


def _short(file: Path, folder: Path) -> str:
    """The path from the model's folder on: no client needs to know where the server keeps it."""
    if not file.is_relative_to(folder):
        return file.name
    return str(Path(folder.parent.name) / folder.name / file.relative_to(folder))
