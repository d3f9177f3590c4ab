"""One copy of a decoupled python model: each request has a sender, which outlives `execute`.

A batch comes from `backends.host.worker` with an outlet per request; user code sends from any
thread until it says `TRITONSERVER_RESPONSE_COMPLETE_FINAL`.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter_ns
from typing import Any

from backends.errors import ExecutionFailed, FaultyModel
from backends.python_api import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from backends.python_api import InferenceRequest, InferenceResponse, TritonModelException
from backends.python_instance import PythonInstance, describe
from backends.seam import Batch, Member, Outcome, Outlet, Part, Result


class InferenceResponseSender:
    """Sends one request's responses; a model that drops it unfinished has its request failed."""

    def __init__(
        self,
        outlet: Outlet,
        read: Callable[[InferenceResponse], Result],
        forgotten: FaultyModel,
    ) -> None:
        self._outlet = outlet
        self._read = read
        self._forgotten = forgotten

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the end (`flags`), or both at once; waits for a client that reads
        slowly. Raises `TritonModelException` after the end."""
        if flags not in (0, FINAL):
            raise TritonModelException(
                "Unable to send response. Unsupported flag value "
                f"{flags}: use 0 or TRITONSERVER_RESPONSE_COMPLETE_FINAL ({FINAL})."
            )
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(
                f"Expected an 'InferenceResponse' object, found type '{type(response)}'."
            )
        part = Part(None, last=bool(flags))
        if response is not None:
            part = part._replace(result=self._read(response), parameters=response.facts)
        if not self._outlet.send(part):
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def is_cancelled(self) -> bool:
        """Whether nobody reads the responses any more; the model should then send the end."""
        return self._outlet.cancelled

    def __del__(self) -> None:
        self._outlet.pass_on(Part(self._forgotten, last=True))


class StreamingPythonInstance(PythonInstance):
    """A decoupled `TritonPythonModel` behind the seam `StreamingInstance`."""

    streams = True

    def __init__(self, *facts: Any) -> None:
        super().__init__(*facts)
        self._loop: asyncio.AbstractEventLoop | None = None

    def stream(self, batch: Batch, outlets: Sequence[Outlet]) -> Outcome:
        """Let the model take the batch in; a coroutine goes on in a loop of the instance's own.
        Raises `ExecutionFailed` with Triton's text when user code fails."""
        started = perf_counter_ns()
        requests = [
            self._sending(member, outlet)
            for member, outlet in zip(batch.members, outlets, strict=True)
        ]
        built = perf_counter_ns()
        try:
            answer = self._model.execute(requests)
        except Exception as error:
            raise ExecutionFailed(self._failed(describe(error, self._version.path))) from error
        if inspect.iscoroutine(answer):
            self._spawn(answer, outlets)
        elif answer is not None:
            raise ExecutionFailed(
                self._failed(
                    f"Python model '{self._version.name}' is using the decoupled mode and the "
                    "execute function must return None."
                )
            )
        return Outcome((), built - started, perf_counter_ns() - built, 0)

    def _sending(self, member: Member, outlet: Outlet) -> InferenceRequest:
        forgotten = FaultyModel(
            f"model '{self._version.name}' version {self._version.number} is faulty: it "
            "dropped the response sender of a request without sending "
            "TRITONSERVER_RESPONSE_COMPLETE_FINAL"
        )
        read = partial(self._result, wanted=member.wanted, rows=None)
        sender = InferenceResponseSender(outlet, read, forgotten)
        return self._request(member, cancelled=sender.is_cancelled, sender=sender)

    def _spawn(self, work: Coroutine[Any, Any, object], outlets: Sequence[Outlet]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="execute", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(partial(self._ended, outlets=outlets))

    def _ended(self, work: "Future[object]", outlets: Sequence[Outlet]) -> None:
        """What a coroutine raises is the error of every request it has not finished."""
        error = work.exception()
        if error is not None:
            failed = ExecutionFailed(self._failed(describe(error, self._version.path)))
            for outlet in outlets:
                outlet.pass_on(Part(failed, last=True))
