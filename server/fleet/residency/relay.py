"""Carries the answer of a scheduler to a reply that was given out before there was one."""

import asyncio
from contextlib import suppress

from schedulers.errors import ShutDown
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply

SHUT_DOWN = "the server unloaded this model before the request could be answered"
MOST_UNREAD = 8
"""Responses of a stream that may lie here while its reader is slower."""


class Relay:
    """From `inner` to `outer`; a `ReplyCarrier` of `outer`. On the loop's thread."""

    def __init__(self, outer: Ticket, inner: Reply) -> None:
        self._outer, self._inner = outer, inner
        self._unread = 0
        self._read = asyncio.Event()
        outer.source = self
        if outer.cancelled:
            inner.cancel()

    def taken(self) -> None:
        self._unread -= 1
        self._read.set()

    def cancel(self) -> None:
        self._inner.cancel()
        self._read.set()

    def executing(self) -> bool:
        return self._inner.executing

    async def run(self) -> None:
        """Return when `outer` has ended, as `inner` did."""
        outer, inner = self._outer, self._inner
        try:
            async for response in inner:
                self._note()
                self._unread += 1
                outer.send(response)
                while self._unread >= MOST_UNREAD and not outer.ended:
                    self._read.clear()
                    await self._read.wait()
            self._note()
            outer.close()
        except asyncio.CancelledError:
            inner.cancel()
            outer.fail(ShutDown(SHUT_DOWN))
            raise
        except Exception as error:  # noqa: BLE001 (carried to whoever asked)
            self._note()
            outer.fail(error)

    def _note(self) -> None:
        """What the request's history shows of its execution."""
        self._outer.started_ns = self._inner.started_ns
        with suppress(AttributeError):
            self._outer.instance = self._inner.instance  # type: ignore[attr-defined]
