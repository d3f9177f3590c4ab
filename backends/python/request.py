"""A python model's request: one that came to `execute`, or one that it makes to call another model.

Source of names and meanings: Triton's `python_backend` (`infer_request.cc`, its README).
"""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from backends.python.calls import (
    CallTerms,
    ResponseIterator,
    call,
    call_async,
    stream_async,
)
from backends.python.model_errors import TritonModelException
from backends.python.response import InferenceResponse
from backends.python.tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


class PreferredMemory:
    """Where a script wants the outputs of a request that it makes; taken, and without effect: all
    tensors between models come in main memory."""

    CPU, GPU = 0, 1

    def __init__(self, preferred_memory_type: int = CPU, preferred_device_id: int = 0) -> None:
        self.type = preferred_memory_type
        self.device_id = preferred_device_id


class InferenceTrace:
    """Names a request that came to `execute`, for those that the model makes for it. `cause`: its
    number, -1 for none."""

    def __init__(self, cause: int = -1) -> None:
        self.cause = cause

    def get_context(self) -> str | None:
        """The span's W3C context; None: the server itself links the spans of calls."""
        return None


_ANY_MEMORY = PreferredMemory()
_NO_TRACE = InferenceTrace()


class ModelResponseSender(Protocol):
    """What a model answers one request with; see `backends.python.streams` for decoupled models,
    `backends.python.single` for others."""

    def send(self, response: "InferenceResponse | None" = None, flags: int = 0) -> None: ...
    def is_cancelled(self) -> bool: ...


class SentResponse:
    """What a model that is not decoupled has sent for one request; `ended`: it sends no more."""

    def __init__(self) -> None:
        self.response: InferenceResponse | None = None
        self.ended = False
        self._end: SimpleQueue[None] = SimpleQueue()

    def end(self) -> None:
        """Nothing more comes; from any thread, also from a destructor."""
        self.ended = True
        self._end.put(None)

    def wait(self) -> None:
        """Until `end`; for one waiter."""
        self._end.get()


class InferenceRequest:
    """One request of the batch a model is asked to execute."""

    def __init__(  # noqa: PLR0913 - Triton's signature
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: "PreferredMemory | None" = None,
        trace: "InferenceTrace | None" = None,
        parameters: "Mapping[str, Any] | None" = None,
        **facts: Any,
    ) -> None:
        """`timeout`: in µs. `trace`: of the request that this one is made for, which also says
        whose permission and deadline it has. `facts`, of one that came to `execute`: `cancelled` (a
        callable), `sender` (a `ModelResponseSender`), or `make_sender` (a callable that makes one
        when the model asks for it; then `sent` is what it sends)."""
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._output_names = list(requested_output_names)
        self._model = (model_name, model_version)
        self._flags = int(flags)
        self._timeout_us = int(timeout)
        self._parameters: Mapping[str, Any] = parameters or {}
        self._preferred_memory = preferred_memory or _ANY_MEMORY
        self._trace = trace or _NO_TRACE
        self.release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self.cancelled: Callable[[], bool] | None = facts.get("cancelled")
        self.sent: SentResponse | None = None
        self._sender: ModelResponseSender | None = facts.get("sender")
        self._make_sender: MakeSender | None = facts.get("make_sender")

    def inputs(self) -> list[Tensor]:
        """The input tensors."""
        return self._inputs

    def request_id(self) -> str:
        """The client's id; empty when it gave none."""
        return self._id

    def correlation_id(self) -> int | str:
        """The sequence's id; 0 for none."""
        return self._correlation_id

    def requested_output_names(self) -> list[str]:
        """The outputs to return."""
        return self._output_names

    def parameters(self) -> str:
        """The request's custom parameters, as JSON text."""
        return json.dumps(dict(self._parameters))

    def timeout(self) -> int:
        """The client's timeout in µs; 0 for none."""
        return self._timeout_us

    def flags(self) -> int:
        """`TRITONSERVER_REQUEST_FLAG_*` bits."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Replace the bits."""
        self._flags = flags

    def model_name(self) -> str:
        """The model asked."""
        return self._model[0]

    def model_version(self) -> int:
        """The version asked."""
        return self._model[1]

    def preferred_memory(self) -> "PreferredMemory":
        """Where a script wants the outputs of its request; they come in main memory."""
        return self._preferred_memory

    def trace(self) -> "InferenceTrace":
        """What a request that the model makes for this one is to be given as its `trace`."""
        return self._trace

    def set_release_flags(self, flags: int) -> None:
        """Say whether `execute` is done with this request (TRITONSERVER_REQUEST_RELEASE_ALL) or
        wants it again (TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) and returns None for it."""
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException(
                f"Unsupported release flag {flags}: use TRITONSERVER_REQUEST_RELEASE_ALL "
                f"({TRITONSERVER_REQUEST_RELEASE_ALL}) or TRITONSERVER_REQUEST_RELEASE_RESCHEDULE "
                f"({TRITONSERVER_REQUEST_RELEASE_RESCHEDULE})."
            )
        self.release_flags = flags

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Send this request to its model and wait for the response; `decoupled`: an iterator over
        any number of them. What fails comes back as a response whose `has_error()` is true. Raises
        `TritonModelException` for a request that names no model or cannot be sent."""
        terms = self._terms()
        return ResponseIterator(terms) if decoupled else call(terms)

    def async_exec(
        self, decoupled: bool = False
    ) -> Coroutine[Any, Any, InferenceResponse | ResponseIterator]:
        """As `exec`, to be awaited; the iterator goes by `for` or by `async for`."""
        terms = self._terms()
        return stream_async(terms) if decoupled else call_async(terms)

    def _terms(self) -> CallTerms:
        name, version = self._model
        if not name:
            raise TritonModelException("a request to another model needs its model_name")
        cause = self._trace.cause
        return CallTerms(
            name,
            version,
            self._id,
            self._correlation_id,
            self._flags,
            self._timeout_us,
            self._parameters,
            self._output_names,
            self._inputs,
            () if cause < 0 else (cause,),
        )

    def is_cancelled(self) -> bool:
        """Whether the client has gone, or has waited too long, and nobody reads the answer."""
        return self.cancelled is not None and self.cancelled()

    def get_response_sender(self) -> ModelResponseSender:
        """Where the model sends this request's responses, from any thread; the same each time. A
        decoupled model sends any number as long as it likes, another one exactly one, and returns
        None for it. Raises `TritonModelException` for a request the model made itself."""
        if self._sender is None:
            if self._make_sender is None:
                raise TritonModelException(
                    "only a request that came to execute has a response sender"
                )
            self.sent = SentResponse()
            self._sender = self._make_sender(self, self.sent)
        return self._sender


MakeSender = Callable[[InferenceRequest, SentResponse], ModelResponseSender]
