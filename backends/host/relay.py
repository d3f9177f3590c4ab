"""The streams of one worker, on the server's side: what a decoupled model says goes to its outlet.

`backends.host.conversation` asks through it, because a worker that streams talks at any time; it
is read on a thread of its own. `backends.host.streaming` is its counterpart in the worker.
"""

import itertools
import json
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from backends import errors
from backends.errors import ExecutionFailed
from backends.host.channel import Received
from backends.host.duplex import Duplex
from backends.host.layout import Block, unpack
from backends.host.messages import Finalize, Heard, Message, Said, Trouble, decode, encode
from backends.host.process import Plan, Process
from backends.host.region import Inbox
from backends.outlet import WINDOW
from backends.seam import Outlet, Part, Result

NONSENSE = (ValueError, TypeError, IndexError, KeyError, OverflowError)
"""What reading a worker's words may raise when it is no worker of ours."""

_TELL_EVERY = WINDOW // 4
_RAISED = {
    kind.__name__: kind for kind in (errors.ExecutionFailed, errors.FaultyModel, errors.LoadFailed)
}


class Gone(Exception):
    """The worker is dead or dying."""


class Relay:
    """Takes over the channel of a loaded worker whose model is decoupled.

    `open`, `ask` and `forget` belong to the conversation's turn; outlets are heard from any thread.
    """

    def __init__(self, plan: Plan, process: Process) -> None:
        self._plan = plan
        self._process = process
        self._numbers = itertools.count()
        self._open: dict[int, Outlet] = {}
        self._taken: dict[int, int] = {}
        self._answers: SimpleQueue[Message | None] = SimpleQueue()
        self._duplex = Duplex(process.channel, plan.name, self._hear, self._gone)
        self._duplex.start()

    @property
    def busy(self) -> bool:
        """Whether the model still owes parts of some stream."""
        return bool(self._open)

    def open(self, outlets: Sequence[Outlet]) -> list[int]:
        """Number these outlets and listen to their readers, until each has ended."""
        numbers = list(itertools.islice(self._numbers, len(outlets)))
        for number, outlet in zip(numbers, outlets, strict=True):
            self._open[number] = outlet
            outlet.heard = partial(self._tell, number)
        return numbers

    def forget(self, numbers: Sequence[int]) -> None:
        """Whatever still comes for these is dropped."""
        for number in numbers:
            self._close(number)

    def ask(self, payload: bytes, fd: int, timeout: float | None) -> Message:
        """One question, one answer. Raises `TimeoutError`, or `Gone`."""
        self._duplex.post(payload, fd)
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if answer is None:
            self._answers.put(None)
            raise Gone
        return answer

    def finalize(self) -> None:
        """Ask the worker to finalize and exit."""
        self._duplex.post(encode(Finalize()))

    def close(self) -> None:
        """Wait for the threads, after the worker's end."""
        self._duplex.join()

    def _tell(self, number: int, gone: bool) -> None:
        """From any thread: a reader has taken a part, or has gone."""
        taken = self._taken.get(number, 0) + (not gone)
        if (gone or taken >= _TELL_EVERY) and number in self._open:
            self._duplex.post(encode(Heard(number, taken, gone)))
            taken = 0
        self._taken[number] = taken

    def _close(self, number: int) -> None:
        outlet = self._open.pop(number, None)
        if outlet is not None:
            outlet.heard = None
        self._taken.pop(number, None)

    # on the reading thread

    def _hear(self, received: Received) -> None:
        try:
            message = decode(received.payload)
            if isinstance(message, Said):
                self._pass_on(message, received.fd)
            else:
                self._answers.put(message)
        except NONSENSE as error:
            self._process.condemn(f"talked nonsense ({error}) and was killed")
            raise EOFError from error

    def _pass_on(self, said: Said, fd: int) -> None:
        result = _result(said, fd)
        parameters = json.loads(said.parameters) if said.parameters else {}
        outlet = self._open.get(said.stream)
        if outlet is None:
            return
        if said.last:
            self._close(said.stream)
        outlet.pass_on(Part(result, parameters, said.last))

    def _gone(self) -> None:
        died = self._plan.died(self._process.ending())
        self._answers.put(None)
        for number, outlet in list(self._open.items()):
            self._close(number)
            outlet.pass_on(Part(died, last=True))


def _result(said: Said, fd: int) -> Result | None:
    """Tensors are views of the message or of its region, which lives as long as they do."""
    inbox = Inbox()
    if fd >= 0:
        inbox.accept(fd)
    if said.trouble is not None:
        return raised(Trouble(*said.trouble))
    if said.empty:
        return None
    region = inbox.view() if fd >= 0 else np.frombuffer(said.data, np.uint8)
    return unpack([Block(*block) for block in said.blocks], 1, region)[0]


def raised(trouble: Trouble) -> Exception:
    """The error a worker speaks of, as it was raised there."""
    if trouble.kind == errors.ModelError.__name__:
        return errors.ModelError(trouble.text, trouble.code)
    return _RAISED.get(trouble.kind, ExecutionFailed)(trouble.text)
