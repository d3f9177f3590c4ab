"""A worker's answers to the server's heartbeats, and to its questions whether the model is ready.

Both come from threads of their own. Each answer carries how often progress was made, so that a
model whose work the server does not see (responses that nobody reads any more) is not taken for
one that hangs; behind that is "1" or "0" where readiness was asked for.
"""

import itertools
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

HEARTBEAT, READINESS = b".", b"?"
COUNT_BYTES = 8

_progress = itertools.count(1)
_made = 0
_check: Callable[[], bool] | None = None


def progressed() -> None:
    """Note that the model has got on; from any thread."""
    global _made
    _made = next(_progress)


def answer_readiness(check: Callable[[], bool]) -> None:
    """Answer with `check()`, which may take its time and must not raise."""
    global _check
    _check = check


def answer_heartbeats(connection: socket.socket) -> None:
    """Answer on daemon threads until the server is gone."""
    threading.Thread(target=_answer, args=(connection,), name="heartbeats", daemon=True).start()


def _answer(connection: socket.socket) -> None:
    questions: SimpleQueue[None] | None = None
    while question := connection.recv(64):
        if question == HEARTBEAT:
            connection.send(_count())
            continue
        if questions is None:
            questions = SimpleQueue()
            arguments = (connection, questions)
            threading.Thread(target=_tell, args=arguments, name="is_ready", daemon=True).start()
        questions.put(None)


def _tell(connection: socket.socket, questions: "SimpleQueue[None]") -> None:
    while True:
        questions.get()
        ready = _check is None or _check()
        connection.send(_count() + (b"1" if ready else b"0"))


def _count() -> bytes:
    return _made.to_bytes(COUNT_BYTES, "little")
