"""The gateway's side of a language model: takes requests in, hands them to engines, answers.

Requests come from `server.dataplane`; what runs when is decided in the engines' processes
(`schedulers.llm.policy.scheduler`). Everything here runs on the event loop's thread.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence

from backends.errors import ExecutionFailed, InstanceDied
from backends.llm.settings import ServeSettings
from backends.seam import Instance
from schedulers.counters import Counters, count_failure, count_success
from schedulers.errors import Cancelled, DeadlineExceeded, Draining, SchedulingError, ShutDown
from schedulers.llm.engine_messages import (
    EmbedReply,
    Message,
    RequestRefused,
    StepReport,
)
from schedulers.llm.errors import PromptTooLong, SenselessRequest
from schedulers.llm.gateway.admission import Admission
from schedulers.llm.gateway.engine_tokeniser import Tokens
from schedulers.llm.gateway.engines import REVIVAL_PATIENCE_S, EngineHandle, Engines
from schedulers.llm.gateway.language import Language
from schedulers.llm.gateway.llm_reply import LLMReply
from schedulers.llm.gateway.llm_request import engine_message, expiry_ns, read_llm_request
from schedulers.llm.gateway.token_times import TokenTimes
from schedulers.llm.generation import Finish, GenerationOutput
from schedulers.request import InferRequest

_SHUT_DOWN = "the server unloaded this model before the request could be answered"
_REFUSALS: dict[str, type[Exception]] = {
    "invalid": SenselessRequest,
    "long": PromptTooLong,
    "busy": ExecutionFailed,
}
"""Why an engine did not take a request in, by the word it sends (`RequestRefused`)."""


class LanguageScheduler:
    """Continuous batching in engine processes; implements `schedulers.seam.Scheduler`."""

    def __init__(
        self,
        settings: ServeSettings,
        language: Language,
        instances: Sequence[Instance],
        counters: Counters,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._language = language
        self._counters = counters
        self._times = TokenTimes(counters)
        self._admission = Admission(settings)
        self._open: dict[LLMReply, None] = {}
        self._unplaced: dict[LLMReply, None] = {}
        self._tokenising: set[asyncio.Task[Tokens]] = set()
        self._id_prefix, self._last_id = secrets.token_hex(4), 0
        self._accepting = True
        self._idle = asyncio.Event()
        self._giving_up: asyncio.TimerHandle | None = None
        self._engines = Engines(
            self._times.counters,
            settings.stall_seconds,
            self._receive,
            self._engine_died,
            self._engine_ready,
        )
        engines = self._engines
        engines.resize(instances)
        language.tokeniser.connect(engines.read, engines.table, engines.control_text)

    # the seam

    def submit(self, request: InferRequest) -> LLMReply:
        """As the seam says. Raises PromptTooLong and SenselessRequest as well."""
        if not self._accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        llm_request = read_llm_request(request, self._language)
        self._admission.admit(llm_request.answers, llm_request.tokens, self._engines.ready)
        if llm_request.prompts:
            return self._tokenise(self._take(LLMReply(request, llm_request)))
        llm_request.refuse(self._language.context)
        ticket = self._take(LLMReply(request, llm_request))
        self._place(ticket)
        return ticket

    def inflight(self) -> int:
        return len(self._open)

    async def drain(self, until_ns: int) -> None:
        self._accepting = False
        self._idle.clear()
        if self._open:
            seconds = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        self._accepting = False
        for ticket in list(self._open):
            self._fail(ticket, ShutDown(_SHUT_DOWN))
        if self._giving_up is not None:
            self._giving_up.cancel()
        await self._engines.close()
        await asyncio.gather(*self._tokenising, return_exceptions=True)

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """Run on exactly these engines from now on; return when those no longer among them are
        closed: when their last answer has ended, or `time.monotonic_ns` passes `until_ns`, and
        then with the process of those that have not ended yet left to end by itself."""
        self._engines.resize(instances)
        seconds = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._engines.retired()

    def hung(self) -> int:
        """None: an engine that hangs is killed."""
        return 0

    async def shrink(self, bytes: int) -> int:
        """Have about so many bytes of cache given back; how many they were."""
        return await self._engines.shrink(bytes)

    async def grow(self, bytes: int) -> int:
        """Let it use at most so many bytes of cache again; how many they are."""
        return await self._engines.grow(bytes)

    # taking in

    def _tokenise(self, ticket: LLMReply) -> LLMReply:
        """Have its texts tokenised by an engine, and go on from there."""
        encoding = self._language.tokeniser.encode(ticket.llm_request.prompts)
        work = self._loop.create_task(encoding)
        self._tokenising.add(work)
        work.add_done_callback(lambda done: self._tokenised(ticket, done))
        return ticket

    def _tokenised(self, ticket: LLMReply, done: "asyncio.Task[Tokens]") -> None:
        self._tokenising.discard(done)
        if done.cancelled():
            return
        error = done.exception()  # looked at in any case, or the loop complains of it
        if ticket not in self._open:
            return
        if isinstance(error, Exception):
            self._fail(ticket, error)
            return
        try:
            ticket.llm_request = ticket.llm_request.tokenised(done.result())
            ticket.llm_request.refuse(self._language.context)
        except SchedulingError as refused:
            self._fail(ticket, refused)
            return
        self._admission.take(ticket, ticket.llm_request.answers, ticket.llm_request.tokens)
        self._place(ticket)

    def _take(self, ticket: LLMReply) -> LLMReply:
        """From here on the ticket will end, and its reader is listened to."""
        self._open[ticket] = None
        self._counters.pending += 1
        self._admission.take(ticket, ticket.llm_request.answers, ticket.llm_request.tokens)
        ticket.source = _ReaderProgress(ticket, self)
        expires_ns = expiry_ns(ticket.request)
        if expires_ns:
            seconds = max(0, expires_ns - time.monotonic_ns()) / 1e9
            ticket.timer = self._loop.call_later(seconds, self._late, ticket)
        return ticket

    def _place(self, ticket: LLMReply) -> None:
        """Ask an engine what a ticket asks, or let it wait for one."""
        first = self._last_id
        self._last_id += ticket.llm_request.answers
        names = [f"{self._id_prefix}-{number}" for number in range(first, self._last_id)]
        message = engine_message(ticket.llm_request, ticket.request, names)
        if self._engines.submit(ticket, names, message):
            ticket.ids = {name: index for index, name in enumerate(names)}
            return
        self._unplaced[ticket] = None
        if self._giving_up is None:
            self._giving_up = self._loop.call_later(REVIVAL_PATIENCE_S, self._give_up)

    # what engines send

    def _receive(self, handle: EngineHandle, message: Message) -> None:
        match message:
            case StepReport():
                self._stepped(handle, message)
            case EmbedReply(name, data, error):
                if (ticket := handle.tickets.get(name)) is not None:
                    self._embedded(ticket, data, error, handle.last_message_ns)
            case RequestRefused(name, kind, text):
                if (ticket := handle.tickets.get(name)) is not None:
                    self._fail(ticket, _REFUSALS[kind](text))

    def _stepped(self, handle: EngineHandle, step: StepReport) -> None:
        for name in step.started:
            if (ticket := handle.tickets.get(name)) is not None:
                self._started(ticket, step.began_ns)
        for output in step.outputs:
            if (ticket := handle.tickets.get(output.id)) is not None:
                self._take_output(ticket, handle, output, handle.last_message_ns)
        if step.counts is not None:
            self._admission.note(self._engines.count(handle, step.counts), handle.last_message_ns)
            self._counters.executions = self._engines.steps

    def _started(self, ticket: LLMReply, began_ns: int) -> None:
        if not ticket.started_ns:
            ticket.started_ns = max(began_ns, ticket.request.arrived_ns)
            self._counters.pending -= 1
            self._admission.start(ticket)
            self._times.start(ticket)

    def _take_output(
        self, ticket: LLMReply, handle: EngineHandle, output: GenerationOutput, now_ns: int
    ) -> None:
        if output.finish not in (None, Finish.STOP, Finish.LENGTH):
            self._fail(ticket, _failure(output))
            return
        index = ticket.ids[output.id]
        before_ns = ticket.before_ns.get(index, ticket.started_ns)
        self._times.add_token(ticket, index, output, now_ns)
        if output.finish is not None:
            del ticket.ids[output.id], handle.tickets[output.id]
            self._admission.take(ticket, len(ticket.ids), ticket.tokens)
            self._counters.inferences += 1
        last = not ticket.ids
        if last:
            self._succeed(ticket, now_ns)
        try:
            if ticket.send_output(index, output, last):
                self._times.add_response(ticket, before_ns, now_ns)
        except SchedulingError as error:
            self._fail(ticket, error)

    def _embedded(self, ticket: LLMReply, data: bytes, error: str, now_ns: int) -> None:
        if error:
            self._fail(ticket, ExecutionFailed(error))
            return
        self._counters.inferences += len(ticket.llm_request.lists or ())
        self._succeed(ticket, now_ns)
        ticket.send_vectors(data)

    def _succeed(self, ticket: LLMReply, now_ns: int) -> None:
        """All of its answer is here; what is left is to hand it on."""
        self._forget(ticket)
        taken_ns = now_ns - ticket.started_ns
        if ticket.request.trace is not None:
            ticket.request.trace.executed(ticket.started_ns, 0, taken_ns, 0)
        self._counters.infer_ns += taken_ns
        self._counters.last_inference_ms = time.time_ns() // 1_000_000
        count_success(ticket, self._counters, ticket.started_ns, now_ns)

    # ending

    def cancelled(self, ticket: LLMReply) -> None:
        """The reader has gone."""
        self._fail(ticket, Cancelled(""))

    def _late(self, ticket: LLMReply) -> None:
        self._fail(ticket, DeadlineExceeded("Request timeout expired"))

    def _fail(self, ticket: LLMReply, error: Exception) -> None:
        if ticket in self._open:
            count_failure(self._counters, error, time.monotonic_ns() - ticket.request.arrived_ns)
            self._forget(ticket)
            ticket.fail(error)

    def _forget(self, ticket: LLMReply) -> None:
        """Nobody works for it any more; how it ended is the caller's to say."""
        del self._open[ticket]
        self._unplaced.pop(ticket, None)
        self._engines.take_back(ticket.ids)
        self._admission.leave(ticket)
        if not ticket.started_ns:
            self._counters.pending -= 1
        if ticket.timer is not None:
            ticket.timer.cancel()
        ticket.source = None
        if not self._open:
            self._idle.set()

    # engines that come and go

    def _engine_died(self, ticket: LLMReply) -> None:
        """Its engine has died. What has had no response is answered from its beginning, once."""
        request = ticket.request
        if ticket.has_sent or ticket.replayed:
            again = "again " if ticket.replayed else ""
            where = f"model '{request.model}' version {request.version}"
            died = f"{where}: the engine's process died {again}while it answered"
            self._fail(ticket, InstanceDied(f"{died}; it is being restarted"))
            return
        ticket.replayed = True
        self._times.counters.replayed += 1
        self._counters.pending += bool(ticket.started_ns)
        ticket.begin_again()
        self._admission.take(ticket, ticket.llm_request.answers, ticket.llm_request.tokens)
        self._place(ticket)

    def _engine_ready(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        tickets, self._unplaced = list(self._unplaced), {}
        for ticket in tickets:
            self._place(ticket)

    def _give_up(self) -> None:
        self._giving_up = None
        for ticket in list(self._unplaced):
            self._fail(ticket, InstanceDied("no engine of the model recovered in time"))


class _ReaderProgress:
    """How the reader of one ticket fares (`schedulers.reply.ReplyListener`)."""

    __slots__ = ("_scheduler", "_ticket")

    def __init__(self, ticket: LLMReply, scheduler: LanguageScheduler) -> None:
        self._ticket = ticket
        self._scheduler = scheduler

    def taken(self) -> None:
        self._ticket.unread_count -= 1

    def cancel(self) -> None:
        self._scheduler.cancelled(self._ticket)


def _failure(output: GenerationOutput) -> Exception:
    """Why an answer ended that neither stopped nor reached its length."""
    if output.finish is Finish.INVALID:
        return SenselessRequest(output.message)
    if output.finish is Finish.DEADLINE:
        return DeadlineExceeded("Request timeout expired")
    return ExecutionFailed(output.message)
