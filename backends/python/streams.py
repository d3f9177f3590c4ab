"""One copy of a decoupled python model: each request has a sender, which outlives `execute`.

A batch comes from `backends.process.worker` with an outlet per request; user code sends from any
thread until it says `TRITONSERVER_RESPONSE_COMPLETE_FINAL`.
"""

import asyncio
import inspect
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter_ns

from backends.errors import ExecutionFailed, FaultyModel, Reschedule
from backends.process.health.heartbeat import progressed
from backends.python.calls import CAUSES
from backends.python.instance import PythonInstance, describe
from backends.python.logger import Logger
from backends.python.model_errors import TritonModelException
from backends.python.request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from backends.python.response import InferenceResponse
from backends.python.single import CLOSED, check_sent
from backends.seam import Batch, BatchResult, Member, ResponsePart, ResponseSender, Result


class InferenceResponseSender:
    """Sends one request's responses; a model that drops it unfinished has its request failed."""

    def __init__(
        self,
        outlet: ResponseSender,
        read: Callable[[InferenceResponse], Result],
        forgotten: FaultyModel,
    ) -> None:
        self._outlet = outlet
        self._read = read
        self._forgotten = forgotten

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the end (`flags`), or both at once; waits for a client that reads
        slowly. Raises `TritonModelException` after the end."""
        check_sent(response, flags)
        progressed()
        part = ResponsePart(None, last=bool(flags))
        if response is not None:
            part = part._replace(result=self._read(response), parameters=response.facts)
        if not self._outlet.send(part):
            raise TritonModelException(CLOSED)

    def is_cancelled(self) -> bool:
        """Whether nobody reads the responses any more; the model should then send the end."""
        return self._outlet.cancelled

    def __del__(self) -> None:
        self._outlet.pass_on(ResponsePart(self._forgotten, last=True))


class StreamingPythonInstance(PythonInstance):
    """A decoupled `TritonPythonModel` behind the seam `StreamingInstance`."""

    streams = True

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Let the model take the batch in; a coroutine goes on in a loop of the instance's own.
        Raises `ExecutionFailed` with Triton's text when user code fails."""
        started = perf_counter_ns()
        requests = [
            self._sending(member, outlet)
            for member, outlet in zip(batch.members, outlets, strict=True)
        ]
        built = perf_counter_ns()
        CAUSES.set(tuple(request.trace().cause for request in requests))
        try:
            answer = self._model.execute(requests)
        except Exception as error:
            raise ExecutionFailed(self._failed(describe(error, self._version.path))) from error
        if inspect.iscoroutine(answer):
            future = self.coroutines().start(answer)
            future.add_done_callback(partial(self._ended, outlets=outlets, requests=requests))
            requests = []
        elif answer is not None:
            raise ExecutionFailed(
                self._failed(
                    f"Python model '{self._version.name}' is using the decoupled mode and the "
                    "execute function must return None."
                )
            )
        _reschedule(requests, outlets)
        return BatchResult((), built - started, perf_counter_ns() - built, 0)

    def _sending(self, member: Member, outlet: ResponseSender) -> InferenceRequest:
        forgotten = FaultyModel(
            f"model '{self._version.name}' version {self._version.number} is faulty: it "
            "dropped the response sender of a request without sending "
            "TRITONSERVER_RESPONSE_COMPLETE_FINAL"
        )
        read = partial(self._result, output_names=member.requested_outputs, rows=None)
        sender = InferenceResponseSender(outlet, read, forgotten)
        return self._request(member, cancelled=sender.is_cancelled, sender=sender)

    def _ended(
        self,
        work: "Future[object]",
        outlets: Sequence[ResponseSender],
        requests: Sequence[InferenceRequest],
    ) -> None:
        """What a coroutine raises is the error of every request it has not finished, and goes to
        the log: there may be none left to be told."""
        if work.cancelled():
            error: BaseException | None = asyncio.CancelledError("execute was cancelled")
        else:
            error = work.exception()
        if error is None:
            _reschedule(requests, outlets)
            return
        Logger.log_error("".join(traceback.format_exception(error)))
        failed = ExecutionFailed(self._failed(describe(error, self._version.path)))
        for outlet in outlets:
            outlet.pass_on(ResponsePart(failed, last=True))


def _reschedule(requests: Sequence[InferenceRequest], outlets: Sequence[ResponseSender]) -> None:
    """End this execution of those that the model wants once more."""
    for request, outlet in zip(requests, outlets, strict=False):
        if request.release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            outlet.pass_on(ResponsePart(Reschedule(), last=True))
