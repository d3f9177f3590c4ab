"""Who asks one worker whether its model is ready; one question is under way at a time.

Belongs to the watch's thread, but for the futures.
"""

import contextlib
import socket
from concurrent.futures import Future, InvalidStateError

from backends.process.health.heartbeat import READINESS


class Readiness:
    """A question that comes while another one has no answer yet waits for that answer, as in
    Triton: a model that takes long is not asked again meanwhile."""

    def __init__(self) -> None:
        self._pending = False
        self._waiting: list[Future[bool]] = []

    def ask(self, answer: "Future[bool]", connection: socket.socket | None) -> None:
        """`connection` is None where there is no worker any more: then the answer is False."""
        self._waiting = [one for one in self._waiting if not one.done()]
        self._waiting.append(answer)
        if connection is None:
            self.answer(False)
        elif not self._pending:
            with contextlib.suppress(OSError):
                connection.send(READINESS)
                self._pending = True

    def answer(self, ready: bool) -> None:
        """The worker has answered, or never will."""
        self._pending = False
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                one.set_result(ready)
