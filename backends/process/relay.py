"""The streams of one worker, on the server's side: what a decoupled model says goes to its outlet.

`backends.process.worker_session` asks through it, because a worker that streams talks at any time;
it is read on a thread of its own. `backends.process.streaming` is its counterpart in the worker.
"""

import itertools
import os
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from backends.process.call_link import CallConnection
from backends.process.duplex import Duplex
from backends.process.layout import TensorBlock, kept_bytes, unpack
from backends.process.messages import (
    Finalize,
    Message,
    StreamPart,
    StreamRead,
    decode,
)
from backends.process.region import RegionReader
from backends.process.reply_validation import NONSENSE, parameters, raised
from backends.process.worker_process import WorkerProcess, WorkerSpec
from backends.response_sender import WINDOW
from backends.seam import Member, ResponsePart, ResponseSender, Result
from repository.process.channel import ChannelMessage

_TELL_EVERY = WINDOW // 4
_REGION_ROUNDING = 2
"""A region is less than twice as large as what lies in it (`backends.process.region`), or small."""


class WorkerGone(Exception):
    """The worker is dead or dying."""


class StreamRelay:
    """Takes over the channel of a loaded worker whose model is decoupled.

    `open`, `ask` and `forget` belong to the conversation's turn; outlets are for any thread.
    """

    def __init__(
        self, plan: WorkerSpec, process: WorkerProcess, calls: CallConnection | None = None
    ) -> None:
        """`calls`: told of requests that nobody waits for, and of those that have ended."""
        self._calls = calls
        self._members: dict[int, Member] = {}
        self._plan = plan
        self._process = process
        self._numbers = itertools.count()
        self._open: dict[int, ResponseSender] = {}
        self._taken: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._activity = process.activity
        self._asking = False
        self._answers: SimpleQueue[Message | None] = SimpleQueue()
        self._duplex = Duplex(process.channel, plan.name, self._receive, self._gone)
        self._duplex.start()

    def behind(self) -> bool:
        """Whether a reader leaves so much untaken that the model may be waiting for it."""
        read = self._read
        return any(
            sent - read.get(number, 0) > WINDOW - _TELL_EVERY
            for number, sent in list(self._sent.items())
        )

    def members(self, numbers: Sequence[int]) -> Sequence[Member]:
        """The requests of these streams, as far as they are open; for none given, of all."""
        members = self._members
        if not numbers:
            return list(members.values())
        return [members[number] for number in numbers if number in members]

    def open(self, outlets: Sequence[ResponseSender], members: Sequence[Member]) -> list[int]:
        """Number these outlets, of these requests, and listen to their readers, until each has
        ended."""
        numbers = list(itertools.islice(self._numbers, len(outlets)))
        self._members.update(zip(numbers, members, strict=True))
        for number, outlet in zip(numbers, outlets, strict=True):
            self._open[number] = outlet
            self._sent[number] = 0
            outlet.notify = partial(self._tell, number)
        self._activity.streams = len(self._open)
        return numbers

    def forget(self, numbers: Sequence[int]) -> None:
        """Whatever still comes for these is dropped."""
        for number in numbers:
            self._close(number)

    def ask(self, payload: bytes, fd: int, timeout: float | None) -> Message:
        """One question, one answer. Raises `TimeoutError`, or `WorkerGone`."""
        self._asking = True
        self._duplex.post(payload, fd)
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if answer is None:
            self._answers.put(None)
            raise WorkerGone
        return answer

    def finalize(self) -> None:
        """Ask the worker to finalize and exit."""
        self._duplex.send(Finalize())

    def close(self) -> None:
        """Wait for the threads, after the worker's end."""
        self._duplex.join()

    def _tell(self, number: int, gone: bool) -> None:
        """From any thread: a reader has taken a part, or has gone."""
        if number in self._sent:
            self._read[number] = self._read.get(number, 0) + (WINDOW << 32 if gone else 1)
        taken = self._taken.get(number, 0) + (not gone)
        if (gone or taken >= _TELL_EVERY) and number in self._open:
            self._duplex.send(StreamRead(number, taken, gone))
            taken = 0
        if gone and self._calls is not None and (member := self._members.get(number)) is not None:
            self._calls.cancelled(member)
        self._taken[number] = taken

    def _close(self, number: int) -> None:
        outlet = self._open.pop(number, None)
        if outlet is not None:
            outlet.notify = None
        member = self._members.pop(number, None)
        if member is not None and self._calls is not None:
            self._calls.left((member,))
        for counts in (self._taken, self._sent, self._read):
            counts.pop(number, None)
        self._activity.streams = len(self._open)

    # on the reading thread

    def _receive(self, received: ChannelMessage) -> None:
        try:
            message = self._decoded(received)
            if isinstance(message, StreamPart):
                self._pass_on(message, received.fd)
            else:
                self._answers.put(message)
        except NONSENSE as error:
            self._process.kill(f"sent an invalid message ({error}) and was killed")
            raise EOFError from error

    def _decoded(self, received: ChannelMessage) -> Message:
        """Anything but a part of a stream is the answer to a question, and its memory is empty."""
        try:
            message = decode(received.payload)
        except NONSENSE:
            _close_descriptor(received.fd)
            raise
        if isinstance(message, StreamPart):
            return message
        _close_descriptor(received.fd)
        if not self._asking:
            raise ValueError(f"{type(message).__name__} without a request")
        self._asking = False
        return message

    def _pass_on(self, part: StreamPart, fd: int) -> None:
        result = self._result(part, fd)
        facts = parameters(part.parameters)
        outlet = self._open.get(part.stream)
        if outlet is None:
            return
        self._activity.progress += 1
        if part.last:
            self._close(part.stream)
        elif result is not None:
            self._count_sent(part.stream)
        outlet.pass_on(ResponsePart(result, facts, part.last))

    def _result(self, part: StreamPart, fd: int) -> Result | None:
        """Tensors are views of the message or of its region, which lives as long as they do."""
        inbox = RegionReader()
        if fd >= 0:
            inbox.accept(fd)
        if part.trouble is not None:
            return raised(part.trouble)
        if part.empty:
            return None
        region = inbox.view() if fd >= 0 else np.frombuffer(part.data, np.uint8)
        blocks = [TensorBlock(*block) for block in part.blocks]
        size = max(kept_bytes(blocks, region), len(region) // _REGION_ROUNDING)
        if 0 < self._plan.output_bytes < size:
            return self._plan.too_large(size, "a response")
        return unpack(blocks, 1, region)[0]

    def _count_sent(self, stream: int) -> None:
        """Raises ValueError when it is more than a model can send: it waits for its reader."""
        self._sent[stream] = sent = self._sent.get(stream, 0) + 1
        if sent - self._read.get(stream, 0) > WINDOW:
            raise ValueError(f"more than {WINDOW} responses that nobody has read")

    def _gone(self) -> None:
        died = self._plan.died(self._process.ending())
        self._answers.put(None)
        for number, outlet in list(self._open.items()):
            self._close(number)
            outlet.pass_on(ResponsePart(died, last=True))


def _close_descriptor(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
