"""Keep the C allocator from giving every large buffer back to the kernel at once.

A request with an image needs a few buffers of 600 KB. glibc takes such sizes from fresh pages and
returns them on every free; faulting the pages in again cost 3 % of the CPU time of a CNN request.
"""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

KEEP_BYTES = 64 << 20
"""Free memory at the heap's end that is kept for the next request."""

MAPPED_BYTES = 8 << 20
"""Blocks from this size on (weights, mostly) have pages of their own and go when freed."""


def keep_buffers() -> None:
    """Set glibc's thresholds for this process; does nothing with another C library."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
