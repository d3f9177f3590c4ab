"""What SIGINT and SIGTERM do before there is a loop that handles them: end the process, in silence.

Nothing has been started by then that would have to be ended. Without a handler the first process of
a container would not end at all (the kernel keeps signals without one from process 1), and SIGINT
would show a traceback of whatever was being imported.
"""

import os
import signal
from typing import Any


def end_on_signals() -> None:
    """Until the loop has handlers of its own (`server.app`). Called on the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, _: Any) -> None:
    os._exit(128 + number)
