"""One call of a script, from its message to the end of its answer."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from backends.process.call_messages import CallRequest
from backends.process.health.liveness import Activity
from backends.response_sender import WINDOW
from schedulers.errors import DeadlineExceeded
from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.bls.causes import CausingRequest, end_if_over
from server.bls.outgoing import LARGE_BYTES, end_part, error_part, response_part, size_of

Send = Callable[[bytes, int], None]


class OpenCall:
    """Carries the responses of `reply` to the script; on the loop's thread.

    `send(payload, descriptor)` posts a message; `ended(self)` is called once, when all was sent.
    `activity`: of the calling instance, which counts this call while it waits for an answer.
    """

    def __init__(
        self,
        request: CallRequest,
        causes: Sequence[CausingRequest],
        send: Send,
        ended: Callable[["OpenCall"], None],
        activity: Activity,
    ) -> None:
        self.number = request.number
        self.model = request.model
        self.causes = causes
        self._stream = request.stream
        self._send = send
        self._ended = ended
        self._activity = activity
        self._error: Exception | None = None
        self._reply: Reply | None = None
        self._unread = 0
        self._room: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, reply: Reply, seconds: float | None) -> None:
        """Carry the answer; `seconds`: after which nobody waits for it any more."""
        self._reply = reply
        for cause in self.causes:
            cause.calls[self.number] = self._cause_cancelled
            cause.context.root.script_calls[reply] = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._late)
        if self._stream:
            self._task = asyncio.ensure_future(self._carry(reply))
        else:
            reply.then(self._answered)

    def end_with(self, error: Exception) -> None:
        """Cancel it, and let this be what the script reads."""
        self._error = self._error or error
        self.cancel()

    def read(self, count: int) -> None:
        """The script has read so many more responses. Raises ValueError for more than were sent."""
        if not 0 < count <= self._unread:
            raise ValueError("more responses read than were sent")
        self._unread -= count
        self._look_for_room()

    def cancel(self) -> None:
        """Nobody waits for it; the called model is told."""
        if self._reply is not None:
            self._reply.cancel()
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._room is not None:
            self._room.set()

    def _cause_cancelled(self) -> None:
        if all(cause.cancelled for cause in self.causes):
            self.cancel()

    def _late(self) -> None:
        self._timer = None
        self.end_with(DeadlineExceeded("Request timeout expired"))

    def _error_part(self, error: Exception) -> tuple[bytes, int]:
        return error_part(self.number, self.model, self._error or error), -1

    # exactly one response

    def _answered(self, reply: Reply) -> None:
        try:
            response = reply.result()
            if size_of(response) < LARGE_BYTES:
                self._post(response_part(self.number, response, last=True))
                return
        except Exception as error:  # noqa: BLE001 - every error is the script's to see
            self._post(self._error_part(error))
            return
        self._task = asyncio.ensure_future(self._carry_large(response))

    async def _carry_large(self, response: InferResponse) -> None:
        try:
            part = await asyncio.to_thread(response_part, self.number, response, True)
        except Exception as error:  # noqa: BLE001 - every error is the script's to see
            part = self._error_part(error)
        self._post(part)

    def _post(self, part: tuple[bytes, int]) -> None:
        self._send(*part)
        self._end()

    # any number of responses

    async def _carry(self, reply: Reply) -> None:
        last = False
        try:
            async for response in reply:
                if self._unread >= WINDOW:
                    await self._read_on(reply)
                last = response.last
                pack = partial(response_part, self.number, response, last)
                large = size_of(response) >= LARGE_BYTES
                self._send(*(await asyncio.to_thread(pack) if large else pack()))
                self._unread += 1
            if not last:
                self._send(end_part(self.number), -1)
        except Exception as error:  # noqa: BLE001 - every error is the script's to see
            reply.cancel()
            self._send(*self._error_part(error))
        self._end()

    async def _read_on(self, reply: Reply) -> None:
        """Wait for the script to read, which is then what has to get on."""
        self._activity.calls -= 1
        self._room = room = self._room or asyncio.Event()
        while self._unread >= WINDOW and not reply.cancelled:
            room.clear()
            await room.wait()
        self._activity.calls += 1

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cause in self.causes:
            cause.calls.pop(self.number, None)
            cause.context.root.script_calls.pop(self._reply, None)
            end_if_over(cause)
        self._ended(self)
