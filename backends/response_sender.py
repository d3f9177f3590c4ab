"""Where the responses of one request to a decoupled model go, from whichever thread they come.

`schedulers.streams` makes one per request and reads at the far end; the model writes at this one.
Where the model lives in a worker there is an outlet on each side of the wall, and the host carries
responses one way, cancels the other.
"""

import threading
from collections.abc import Callable
from typing import cast

from backends.errors import ExecutionFailed
from backends.seam import Batch, Instance, ResponsePart, StreamingInstance

WINDOW = 16
"""Responses of one request that may be on their way or waiting to be read; the next `send` waits.
So a reader that has stopped reading costs this much memory and no more."""


class BoundedResponseSender:
    """One stream between a model and its reader; ends with the first part that is `last`.

    The model's end, from any thread: `send`, and `cancelled` and `ended` to look at. The reader's
    end, never blocking: `taken`, `cancel` and `end`. `notify` belongs to an instance that only
    passes parts on: it is called after the first two, with whether the reader has gone.
    """

    __slots__ = ("_changed", "_deliver", "_untaken", "cancelled", "ended", "notify")

    def __init__(self, deliver: Callable[[ResponsePart], None]) -> None:
        """`deliver(part)` is called once per part, in order, from the sender's thread; it must
        not block."""
        self._deliver = deliver
        self._changed = threading.Condition()
        self._untaken = 0
        self.cancelled = False
        self.ended = False
        self.notify: Callable[[bool], None] | None = None

    def send(self, part: ResponsePart) -> bool:
        """Hand a part over; waits while `WINDOW` results are not taken. False once it has ended.

        When nobody reads any more, nothing waits and everything but the end is dropped.
        """
        with self._changed:
            if part.result is not None:
                self._changed.wait_for(self._has_room)
                self._untaken += 1
            return self.pass_on(part)

    def pass_on(self, part: ResponsePart) -> bool:
        """As `send`, without waiting: for who has waited elsewhere, or ends the stream by force."""
        with self._changed:
            if self.ended:
                return False
            self.ended = part.last
            if self.cancelled:
                part = part._replace(result=None)
            if part.last or not self.cancelled:
                self._deliver(part)
            if part.last:
                self._deliver = _nowhere
            return True

    def end(self) -> None:
        """The reader's end, by force: nothing is delivered any more. Idempotent."""
        with self._changed:
            self.ended = True
            self._deliver = _nowhere  # who delivers often holds the outlet: no cycle stays behind
            self._changed.notify_all()

    def taken(self) -> None:
        """The reader has read one result: there is memory for another."""
        with self._changed:
            self._untaken -= 1
            self._changed.notify_all()
        if self.notify is not None:
            self.notify(False)

    def cancel(self) -> None:
        """Nobody reads any more; the model is expected to find out and to end. Idempotent."""
        with self._changed:
            if self.cancelled or self.ended:
                return
            self.cancelled = True
            self._changed.notify_all()
        if self.notify is not None:
            self.notify(True)

    def _has_room(self) -> bool:
        return self._untaken < WINDOW or self.cancelled or self.ended


def _nowhere(_part: ResponsePart) -> None:
    """Where what comes after the end goes."""


PATIENCE_S = 600.0
"""How long `respond` waits for the end of what it started."""


def respond(instance: Instance, batch: Batch) -> list[list[ResponsePart]]:
    """Every part of every member of one batch; blocks until all have ended.

    For who wants the whole answer and not the stream: warming up, checking. Raises what `stream`
    raises, and `ExecutionFailed` when the model does not end within `PATIENCE_S`.
    """
    of_members: list[list[ResponsePart]] = [[] for _ in batch.members]
    ended = threading.Semaphore(0)
    outlets = [_collector(parts, ended) for parts in of_members]
    cast(StreamingInstance, instance).stream(batch, outlets)
    for _ in outlets:
        if not ended.acquire(timeout=PATIENCE_S):
            raise ExecutionFailed(f"the model did not end its responses within {PATIENCE_S:g} s")
    return of_members


def _collector(parts: list[ResponsePart], ended: threading.Semaphore) -> BoundedResponseSender:
    def deliver(part: ResponsePart) -> None:
        parts.append(part)
        outlet.taken()
        if part.last:
            ended.release()

    outlet = BoundedResponseSender(deliver)
    return outlet
