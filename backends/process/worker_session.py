"""What is said to one worker: load this, execute that, finalize.

A batch comes in by `execute` or `stream` on the instance's thread; `backends.process.worker` is at
the other end. Tensors go through shared memory, the rest by message.
"""

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from backends.errors import BackendError, ExecutionFailed, LoadFailed
from backends.process.batch_regions import BatchReader, BatchWriter
from backends.process.call_link import CAUSE_BITS, CallConnection
from backends.process.health.liveness import Activity
from backends.process.messages import (
    BatchExecuted,
    BatchFailed,
    Execute,
    Finalize,
    Load,
    Message,
    RequestMetadata,
    WorkerLoaded,
    decode,
    encode,
)
from backends.process.relay import StreamRelay, WorkerGone
from backends.process.reply_validation import (
    NONSENSE,
    loaded_as_promised,
    parameters,
    raised,
)
from backends.process.worker_process import WorkerProcess, WorkerSpec
from backends.seam import Batch, BatchResult, Member, ResponseSender, Result
from repository.config.tensors import Array
from repository.model import ModelVersion
from repository.process.child import REAP_SECS

_log = logging.getLogger(__name__)


class WorkerSession:
    """One life of a worker, from its first message to its last.

    `close` must be called at the end of it, whatever happened before.
    """

    def __init__(
        self,
        plan: WorkerSpec,
        process: WorkerProcess,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits()` follows on the loop when the model begins to wait for another one."""
        self.process = process
        self.waits = waits
        self._calls: CallConnection | None = None
        self.state_bytes = 0
        self._executions = 0
        self._plan = plan
        self._output_bytes = plan.output_bytes
        self._turn = threading.Lock()
        self._outbox = BatchWriter(member_bytes=1)
        self._inbox = BatchReader()
        self._relay: StreamRelay | None = None
        self._flagging = threading.Lock()
        self._flags: tuple[Batch, Array] | None = None

    def load(self) -> WorkerLoaded:
        """Load the model in the worker; blocks. Raises `LoadFailed`."""
        plan = self._plan
        try:
            descriptor = self._connect_calls()
            answer = self._loaded(
                self._ask(encode(_load_request(plan)), plan.load_secs, descriptor)
            )
        except TimeoutError:
            raise LoadFailed(
                f"{plan.where} did not finish loading within {plan.load_secs:g} s"
            ) from None
        except WorkerGone:
            ending = f"the worker process {self.process.ending()} while loading"
            raise LoadFailed(f"{plan.where}: {self.process.refusal() or ending}") from None
        if answer.streams:
            self._relay = StreamRelay(plan, self.process, self._calls)
        self.process.loaded(self._relay)
        return answer

    def _connect_calls(self) -> int:
        """The worker's end of the connection for its model's calls, for the message that brings it
        there; -1 where nobody takes any."""
        service = self._plan.program.calls
        if service is None:
            return -1
        ours, theirs = socket.socketpair()
        self._calls = service.connect(self, ours)
        return theirs.detach()

    @property
    def version(self) -> ModelVersion:
        return self._plan.version

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def spec(self) -> WorkerSpec:
        return self._plan

    @property
    def activity(self) -> Activity:
        return self.process.activity

    def kill(self, verdict: str) -> None:
        self.process.kill(verdict)

    def causing(self, numbers: Sequence[int]) -> Sequence[Member]:
        """See `backends.process.call_link.CallingInstance`."""
        if self._relay is not None:
            return self._relay.members(numbers)
        with self._flagging:
            if self._flags is None:
                return ()
            members = self._flags[0].members
            if not numbers:
                return members
            first = self._executions << CAUSE_BITS
            return [members[one - first] for one in numbers if 0 <= one - first < len(members)]

    def _loaded(self, answer: Message) -> WorkerLoaded:
        try:
            return loaded_as_promised(answer, self._plan.version)
        except NONSENSE as error:
            raise self._nonsense(str(error)) from error

    def execute(self, batch: Batch) -> BatchResult:
        """Run one batch in the worker. Raises `ExecutionFailed` or `FaultyModel` as the worker
        does, `InstanceDied` when it is gone, hangs or sends what is no message."""
        return self._in_turn(batch, ())

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Hand one batch to a decoupled model; raises as `execute`. Afterwards the outlets are
        ended by the model, or by its worker's death."""
        assert self._relay is not None
        streams = self._relay.open(outlets, batch.members)
        try:
            return self._in_turn(batch, streams)
        except BackendError:
            self._relay.forget(streams)
            raise

    def cancel(self, batch: Batch, member: int) -> None:
        """Raise the member's flag, if its batch is the one that executes. Never blocks for long."""
        with self._flagging:
            if self._flags is None or self._flags[0] is not batch:
                return
            self._flags[1][member] = 1
        if self._calls is not None:
            self._calls.cancelled(batch.members[member])

    def _in_turn(self, batch: Batch, streams: Sequence[int]) -> BatchResult:
        activity = self.process.activity
        with self._turn:
            activity.progress += 1
            activity.executions += 1
            activity.executing = True
            try:
                return self._execute(batch, streams)
            except WorkerGone:
                pass  # told below, with how it ended
            finally:
                with self._flagging:
                    self._flags = None
                activity.executing = False
                if self._calls is not None and not streams:
                    self._calls.left(batch.members)
        raise self._plan.died(self.process.ending())

    def finalize(self, within_secs: float) -> None:
        """Ask the worker to finalize and exit; end it by force after `within_secs`, or at once
        while it executes: who closes then has waited for the execution as long as it wants to."""
        if self._turn.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._ask_to_finalize()
                self.process.gone.wait(within_secs)
            finally:
                self._turn.release()
        self.process.terminate()

    def _ask_to_finalize(self) -> None:
        if self._relay is not None:
            self._relay.finalize()
        else:
            self.process.channel.send(encode(Finalize()))

    def close(self) -> None:
        """Wait for the worker's end and give this side's memory and descriptors back; of a process
        that does not end though killed, nothing can be given back."""
        if not self.process.gone.wait(REAP_SECS):
            _log.error("%s", self._plan.died(self.process.ending()))
            return
        if self._calls is not None:
            self._calls.close()
        with self._turn:
            if self._relay is not None:
                self._relay.close()
            self.process.release()
            self._outbox.close()
            self._inbox.close()

    def _execute(self, batch: Batch, streams: Sequence[int]) -> BatchResult:
        started = perf_counter_ns()
        answer = self._ask(self._written(batch, streams))
        answered = perf_counter_ns()
        if isinstance(answer, BatchExecuted | BatchFailed) and answer.held:
            self._outbox.close()
        try:
            if isinstance(answer, BatchFailed):
                refused = raised(answer.trouble)
            elif isinstance(answer, BatchExecuted):
                return self._outcome(answer, len(batch.members), bool(streams), started, answered)
            else:
                raise TypeError(f"it answered a batch with {type(answer).__name__}")
        except NONSENSE as error:
            raise self._nonsense(str(error)) from error
        raise refused

    def _outcome(
        self, answer: BatchExecuted, members: int, streams: bool, started: int, answered: int
    ) -> BatchResult:
        results = self._results(answer, 0 if streams else members)
        read_ns = perf_counter_ns() - answered
        infer_ns, output_ns = answer.infer_ns, answer.output_ns
        input_ns = max(0, answered - started - infer_ns - output_ns)
        self.state_bytes = answer.state_bytes
        if not answer.parameters:
            return BatchResult(results, input_ns, infer_ns, output_ns + read_ns)
        of_members = {index: parameters(text) for index, text in answer.parameters.items()}
        return BatchResult(results, input_ns, infer_ns, output_ns + read_ns, of_members)

    def _written(self, batch: Batch, streams: Sequence[int]) -> bytes:
        """The request for a batch whose tensors, and flags, now lie in our region."""
        count = len(batch.members)
        self._executions += 1
        try:
            blocks = self._outbox.pack([member.inputs for member in batch.members])
            flags = self._outbox.region[:count]
            flags.fill(0)
            self._flags = (batch, flags)
            members = tuple(map(_facts, batch.members))
            return encode(
                Execute(
                    tuple(batch.rows),
                    batch.batched,
                    members,
                    blocks,
                    tuple(streams),
                    batch.sequences,
                )
            )
        except NONSENSE as error:
            raise ExecutionFailed(f"{self._plan.where}: cannot send this batch: {error}") from error

    def _results(self, answer: BatchExecuted, count: int) -> Sequence[Result]:
        """The results, copied out of the region at once, so that the worker may reuse it. Raises
        ExecutionFailed when they are too large."""
        try:
            layout = self._inbox.layout(answer.blocks, count)
            if 0 < self._output_bytes < layout.size_bytes:
                raise self._plan.too_large(layout.size_bytes, "its answer to a batch")
            results: list[Any] = layout.copies(self._inbox.region)
        except NONSENSE as error:
            raise ValueError(f"its tensors cannot be read: {error}") from error
        for index, trouble in answer.errors.items():
            results[index] = raised(trouble)
        return results

    def _ask(self, payload: bytes, timeout: float | None = None, fd: int = -1) -> Message:
        """One question, one answer; `fd` goes along and is closed. Raises `TimeoutError`, or
        `WorkerGone`."""
        fd = self._outbox.take_fd() if fd < 0 else fd
        if self._relay is not None:
            return self._relay.ask(payload, fd, timeout)
        try:
            self.process.channel.send(payload, fd)
            answer, region = self.process.channel.receive(timeout)
            if region >= 0:
                self._inbox.accept(region)
            return decode(answer)
        except TimeoutError:
            raise
        except (EOFError, OSError):
            raise WorkerGone from None
        except NONSENSE as error:
            raise self._nonsense(str(error)) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _nonsense(self, what: str) -> WorkerGone:
        self.process.kill(f"sent an invalid message ({what}) and was killed")
        return WorkerGone(what)


def _load_request(plan: WorkerSpec) -> Load:
    version, device = plan.version, plan.device
    return Load(
        name=version.name,
        number=version.number,
        folder=str(version.folder),
        path=str(version.path),
        config=version.config.SerializeToString(),
        digest=version.digest,
        kind=device.kind,
        device_index=device.index,
        threads=device.threads,
    )


def _facts(member: Member) -> RequestMetadata:
    parameters = json.dumps(dict(member.parameters)) if member.parameters else ""
    key = member.correlation_id
    if isinstance(key, int) and not -(1 << 63) <= key < 1 << 64:
        key = str(key)
    timeout_us = min(member.timeout_us, (1 << 63) - 1)
    return RequestMetadata(member.id, key, parameters, tuple(member.requested_outputs), timeout_us)
