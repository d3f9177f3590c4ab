"""Follow something to its end, with how far it is on stderr: an import, a job."""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from server.cli.commands.client import ServerUnreachable

LOOK_S, PATIENCE_S = 0.5, 60.0
"""How often it is looked at, and how long without an answer."""
_ERASE = "\r\x1b[K"

View = TypeVar("View")


def follow(
    look: Callable[[], View],
    line: Callable[[View, bool], str],
    has_ended: Callable[[View], bool],
) -> View:
    """The view once it has ended. `line` says how far it is, on a terminal or not; only what is new
    is written. A server that is started again meanwhile is waited for; raises ServerUnreachable
    after PATIENCE_S."""
    on_terminal = sys.stderr.isatty()
    shown, answered = "", time.monotonic()
    while True:
        try:
            view = look()
            answered = time.monotonic()
        except ServerUnreachable:
            if time.monotonic() - answered > PATIENCE_S:
                raise
            time.sleep(LOOK_S)
            continue
        text = line(view, on_terminal)
        if text != shown:
            sys.stderr.write(f"{_ERASE}{text}" if on_terminal else f"{text}\n")
            sys.stderr.flush()
        shown = text
        if has_ended(view):
            sys.stderr.write("\n" if on_terminal else "")
            return view
        time.sleep(LOOK_S)
