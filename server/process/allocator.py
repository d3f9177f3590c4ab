"""What the C allocator keeps for itself: much where requests are answered, little elsewhere.

A request with an image needs a few buffers of 600 KB. glibc takes such sizes from fresh pages and
returns them on every free; faulting the pages in again cost 3 % of the CPU time of a CNN request,
and two thirds of that of a request with 16 MB.
The control process needs large buffers now and then, from many threads: of what they leave, more
and more is kept between what lives on, 20 KiB for each push.
"""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h

KEEP_BYTES = 64 << 20
"""Free memory at the end of an arena's heap that is kept for the next request; from this size on
all of it is returned."""

MAPPED_BYTES = 32 << 20
"""Blocks from this size on (weights, mostly) have pages of their own and go when freed. It is the
most that glibc takes; smaller weights go when `malloc_trim` follows a load or an unload, and what
requests have left when none come (`server.process.idle_trim`)."""

SMALL_BYTES = 128 << 10
"""glibc's own first threshold, which it raises with each larger block that is freed unless set."""


def keep_buffers(cores: int) -> None:
    """Keep what was freed for the next request, until `return_free_memory`; only with glibc.

    Threads that begin later share an arena for each of these cores, for so many execute at once. By
    itself glibc makes eight a core: of eight threads that had 32 MiB each, it kept 256 MiB.
    """
    _set({_M_TRIM_THRESHOLD: KEEP_BYTES, _M_MMAP_THRESHOLD: MAPPED_BYTES, _M_ARENA_MAX: cores})


def return_buffers() -> None:
    """Return large blocks to the kernel when they are freed, and have all threads share one arena;
    only with glibc, and only for threads that begin later."""
    _set({_M_TRIM_THRESHOLD: SMALL_BYTES, _M_MMAP_THRESHOLD: SMALL_BYTES, _M_ARENA_MAX: 1})


def return_free_memory() -> None:
    """Have the C allocator return what is free to the kernel, of all arenas; only with glibc.
    Runtimes free weights in pieces that it would keep."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set(options: dict[int, int]) -> None:
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)
