"""What is said to one worker: load this, execute that, finalize.

A batch comes in by `execute` on the instance's thread; `backends.host.worker` is at the other
end. Tensors go through shared memory, the rest by message.
"""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from backends import errors
from backends.errors import ExecutionFailed, InstanceDied, LoadFailed
from backends.host.layout import pack, unpack
from backends.host.messages import (
    Execute,
    Executed,
    Facts,
    Failed,
    Finalize,
    Load,
    Loaded,
    Message,
    Refused,
    Trouble,
    decode,
    encode,
)
from backends.host.process import Plan, Process
from backends.host.region import Inbox, Outbox
from backends.seam import Batch, Member, Outcome, Result

_TERMINATE_SECS = 1.0
_NONSENSE = (ValueError, TypeError, IndexError, KeyError, OverflowError)
_RAISED = {
    kind.__name__: kind for kind in (errors.ExecutionFailed, errors.FaultyModel, errors.LoadFailed)
}


class _Gone(Exception):
    """The worker is dead or dying."""


class Conversation:
    """One life of a worker, from its first message to its last.

    `close` must be called at the end of it, whatever happened before.
    """

    def __init__(self, plan: Plan, process: Process) -> None:
        self.process = process
        self._plan = plan
        self._turn = threading.Lock()
        self._outbox = Outbox()
        self._inbox = Inbox()

    def load(self) -> Loaded:
        """Load the model in the worker; blocks. Raises `LoadFailed`."""
        plan = self._plan
        try:
            answer = self._ask(encode(_load_request(plan)), plan.load_secs)
        except TimeoutError:
            raise LoadFailed(
                f"{plan.where} did not finish loading within {plan.load_secs:g} s"
            ) from None
        except _Gone:
            raise LoadFailed(
                f"{plan.where}: the worker process {self.process.ending()} while loading"
            ) from None
        if isinstance(answer, Failed):
            raise LoadFailed(answer.text)
        assert isinstance(answer, Loaded)
        self.process.watch_pulse()
        return answer

    def execute(self, batch: Batch) -> Outcome:
        """Run one batch in the worker. Raises `ExecutionFailed` or `FaultyModel` as the worker
        does, `InstanceDied` when it is gone, executes for too long, or talks nonsense."""
        with self._turn:
            self.process.excused = True
            try:
                return self._execute(batch)
            except TimeoutError:
                secs = self._plan.execute_secs
                self.process.condemn(f"executed one batch for more than {secs:g} s and was killed")
            except _Gone:
                pass  # told below, with how it ended
            finally:
                self.process.excused = False
        raise InstanceDied(
            f"{self._plan.where}: the worker process of instance '{self._plan.name}' "
            f"{self.process.ending()}; it is being restarted"
        )

    def finalize(self, within_secs: float) -> None:
        """Ask the worker to finalize and exit; end it by force after `within_secs`."""
        with contextlib.suppress(OSError), self._turn:
            self.process.channel.send(encode(Finalize()))
        if not self.process.dead.wait(within_secs):
            self.process.signal(signal.SIGTERM)
            if not self.process.dead.wait(_TERMINATE_SECS):
                self.process.signal(signal.SIGKILL)

    def close(self) -> None:
        """Wait for the worker's end and give this side's memory and descriptors back."""
        self.process.dead.wait()
        with self._turn:
            self.process.release()
            self._outbox.close()
            self._inbox.close()

    def _execute(self, batch: Batch) -> Outcome:
        started = perf_counter_ns()
        answer = self._ask(self._written(batch), self._plan.execute_secs)
        answered = perf_counter_ns()
        if not isinstance(answer, Executed | Refused):
            raise self._nonsense(f"it answered a batch with {type(answer).__name__}")
        if answer.held:
            self._outbox.forget()
        if isinstance(answer, Refused):
            raise _error(Trouble(*answer.trouble))
        results = self._results(answer, len(batch.members))
        read_ns = perf_counter_ns() - answered
        input_ns = max(0, answered - started - answer.infer_ns - answer.output_ns)
        return Outcome(results, input_ns, answer.infer_ns, answer.output_ns + read_ns)

    def _written(self, batch: Batch) -> bytes:
        """The request for a batch whose tensors now lie in our region."""
        try:
            blocks = tuple(pack([member.inputs for member in batch.members], self._outbox))
            members = tuple(map(_facts, batch.members))
            return encode(Execute(tuple(batch.rows), batch.batched, members, blocks))
        except _NONSENSE as error:
            raise ExecutionFailed(f"{self._plan.where}: cannot send this batch: {error}") from error

    def _results(self, answer: Executed, count: int) -> Sequence[Result]:
        """The results, copied out of the region at once, so that the worker may reuse it."""
        results: list[Any] = [{} for _ in range(count)]
        try:
            if answer.blocks:
                region = self._inbox.view()
                results = list(unpack(answer.blocks, count, region))
                for outputs in results:
                    for name, array in outputs.items():
                        if array.base is region:
                            outputs[name] = array.copy()
            for index, trouble in answer.errors.items():
                results[index] = _error(Trouble(*trouble))
        except _NONSENSE as error:
            raise self._nonsense(f"its tensors cannot be read: {error}") from error
        return results

    def _ask(self, payload: bytes, timeout: float | None) -> Message:
        """One question, one answer. Raises `TimeoutError`, or `_Gone`."""
        fd = self._outbox.take_fd()
        try:
            self.process.channel.send(payload, fd)
            answer, region = self.process.channel.receive(timeout)
            if region >= 0:
                self._inbox.accept(region)
            return decode(answer)
        except TimeoutError:
            raise
        except (EOFError, OSError):
            raise _Gone from None
        except _NONSENSE as error:
            raise self._nonsense(str(error)) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def _nonsense(self, what: str) -> _Gone:
        self.process.condemn(f"talked nonsense ({what}) and was killed")
        return _Gone(what)


def _load_request(plan: Plan) -> Load:
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


def _facts(member: Member) -> Facts:
    parameters = json.dumps(dict(member.parameters)) if member.parameters else ""
    key = member.correlation_id
    if isinstance(key, int) and not -(1 << 63) <= key < 1 << 64:
        key = str(key)
    timeout_us = min(member.timeout_us, (1 << 63) - 1)
    return Facts(member.id, key, parameters, tuple(member.wanted), timeout_us)


def _error(trouble: Trouble) -> Exception:
    if trouble.kind == errors.ModelError.__name__:
        return errors.ModelError(trouble.text, trouble.code)
    return _RAISED.get(trouble.kind, ExecutionFailed)(trouble.text)
