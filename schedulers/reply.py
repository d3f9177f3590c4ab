"""The slip carried back: responses travel from the scheduler to whoever asked.

Promise: zero or more responses, then exactly one of close or fail. All methods belong to the
event loop's thread. One shape serves unary requests and streams: the source of a stream learns
what was read, and waits for a reader that is slower.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from schedulers.errors import Cancelled, SchedulingError
from schedulers.request import InferResponse


class NotOneResponse(SchedulingError):
    """A unary caller met a model that answered with no response, or with several."""


class ReplyListener(Protocol):
    """Who wants to know how the reader fares; neither may block."""

    def taken(self) -> None:
        """One response was read."""

    def cancel(self) -> None:
        """Nobody reads any more."""


@runtime_checkable
class ReplyCarrier(ReplyListener, Protocol):
    """A listener that has others work on the request, as an ensemble its steps."""

    def executing(self) -> bool:
        """Whether any of them does now, and they do not all wait in queues."""


class Reply:
    """Two ends of one answer.

    Inside (the scheduler): `send`, `close`, `fail`, and `cancelled` to look at.
    The scheduler sets `source` while somebody must be told of reading and cancelling.
    Outside (the front end): `await one()`, `async for`, `cancel()`, or `then(callback)` for one
    that wants to be called instead of woken.
    """

    __slots__ = (
        "_callback",
        "_first",
        "_more",
        "_waiter",
        "arrived_ns",
        "cancelled",
        "ended",
        "error",
        "recorder",
        "source",
        "started_ns",
        "watcher",
    )

    def __init__(self) -> None:
        self._first: InferResponse | None = None
        self._more: deque[InferResponse] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._callback: Callable[[Reply], None] | None = None
        self.error: Exception | None = None
        """Why it ended, None where it ended well or has not. Only `fail` sets it."""
        self.source: ReplyListener | None = None
        self.arrived_ns = 0
        """When its request arrived, on time.monotonic_ns, where a watcher wants to know."""
        self.started_ns = 0
        """When its execution began, on time.monotonic_ns; 0 before."""
        self.watcher: Callable[[Reply], None] | None = None
        """Called at the end; set it with `watch`, or by hand where nobody does yet."""
        self.recorder: Callable[[Reply], None] | None = None
        """Called at the end before all watchers; whoever submitted the request sets it, before
        the reply has ended."""
        self.ended = False
        self.cancelled = False

    # inside

    def send(self, response: InferResponse) -> None:
        """Hand over one response; `response.last` closes the reply as well."""
        if self.ended:
            return
        if self._first is None and not self._more:
            self._first = response
        elif self._callback is not None:
            self._refuse_second()
            return
        elif self._more is None:
            self._more = deque((response,))
        else:
            self._more.append(response)
        self.ended = response.last
        self._wake()

    def close(self) -> None:
        """End without a further response."""
        if not self.ended:
            self.ended = True
            self._wake()

    def fail(self, error: Exception) -> None:
        """End with an error; what was sent before still arrives first."""
        if not self.ended:
            self.error = error
            self.ended = True
            self._wake()

    def _refuse_second(self) -> None:
        """A unary caller reads nothing before the end: the second response is the end."""
        self.fail(NotOneResponse("expected exactly one response, got 2 or more"))
        if self.source is not None:
            self.source.cancel()

    def _wake(self) -> None:
        if self.ended:
            if self.recorder is not None:
                self.recorder(self)
            if self.watcher is not None:
                watcher, self.watcher = self.watcher, None
                watcher(self)
        if self._callback is not None:
            if self.ended:
                callback, self._callback = self._callback, None
                callback(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # beside

    def watch(self, watcher: Callable[["Reply"], None]) -> None:
        """Call `watcher(self)` once, on the loop, when the reply has ended and before its reader
        knows; for who counts how requests end, and takes nothing. Several may watch."""
        if self.ended:
            watcher(self)
        elif (before := self.watcher) is None:
            self.watcher = watcher
        else:
            self.watcher = _both(before, watcher)

    @property
    def executing(self) -> bool:
        """Of one that has not ended: whether its request does not only wait in a queue."""
        if isinstance(self.source, ReplyCarrier):
            return self.source.executing()
        return self.started_ns > 0

    @property
    def unread(self) -> InferResponse | None:
        """The first response that nobody has taken yet."""
        return self._first

    # outside

    def cancel(self) -> None:
        """Nobody waits any more; the scheduler drops the request when it next looks at it."""
        if self.ended:
            return
        self.cancelled = True
        self.fail(Cancelled(""))
        if self.source is not None:
            self.source.cancel()

    def then(self, callback: Callable[["Reply"], None]) -> None:
        """Call `callback(self)` once, on the loop, when the reply has ended; then use `result`."""
        if self.ended:
            callback(self)
        else:
            self._callback = callback

    def result(self) -> InferResponse:
        """The only response of an ended reply. Raises its error, or `NotOneResponse`."""
        if self.error is not None:
            raise self.error
        if self._first is None or self._more:
            count = 0 if self._first is None else 1 + len(self._more or ())
            raise NotOneResponse(f"expected exactly one response, got {count}")
        return self._first

    async def one(self) -> InferResponse:
        """The only response; cancelling the awaiting task cancels the request."""
        while not self.ended:
            if self._more:
                self._refuse_second()
                break
            await self._woken()
        return self.result()

    def __aiter__(self) -> "Reply":
        return self

    async def __anext__(self) -> InferResponse:
        while True:
            if self._first is not None:
                response, self._first = self._first, None
                if self._more:
                    self._first = self._more.popleft()
                if self.source is not None:
                    self.source.taken()
                return response
            if self.error is not None:
                raise self.error
            if self.ended:
                raise StopAsyncIteration
            await self._woken()

    async def _woken(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._waiter = None


def _both(one: Callable[[Reply], None], other: Callable[[Reply], None]) -> Callable[[Reply], None]:
    def watch(reply: Reply) -> None:
        one(reply)
        other(reply)

    return watch
