"""Whether a load failed for want of something that may be there again, and when to try it again.
Pure.
"""

import errno
from collections.abc import Iterator

FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_TRIES = 1.0, 60.0, 20
"""Pauses double: the last of so many tries is some 15 minutes after the first."""

_BY_NUMBER = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}

_BY_WORDS = {
    "Too many open files": "file descriptors",
    "Cannot allocate memory": "memory",
    "bad_alloc": "memory",
    "MemoryError": "memory",
    "out of memory": "memory",
    "No space left on device": "disk space",
    "Disk quota exceeded": "disk space",
}
"""As runtimes and worker processes put it, which only hand their errors on as text."""


def shortage_of(error: BaseException) -> str:
    """What the load lacked, in words; "" for every other failure, and for memory of the budget that
    nobody will give back by himself."""
    for one in _causes(error):
        if isinstance(one, MemoryError) or getattr(one, "may_pass", False):
            return "memory"
        if isinstance(one, OSError) and one.errno in _BY_NUMBER:
            return _BY_NUMBER[one.errno]
        text = str(one)
        for words, what in _BY_WORDS.items():
            if words in text:
                return what
    return ""


def pause_s(tries: int) -> float | None:
    """How long to wait after so many tries that failed; None: no more."""
    if tries >= MOST_TRIES:
        return None
    return min(FIRST_PAUSE_S * 2.0 ** (tries - 1), LONGEST_PAUSE_S)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    depth = 0
    while error is not None and depth < 10:
        yield error
        error, depth = error.__cause__ or error.__context__, depth + 1
