"""A tensor as the protocol's bytes: row-major, little-endian, texts behind their lengths.

The codecs come here with outputs, for binary data, raw contents and shared memory.
"""

from typing import Any

import numpy as np

from repository.config.tensors import Array


def octets(array: Array) -> bytes | memoryview:
    """The bytes of `array`; a view where it is contiguous, and packed elements of BYTES."""
    if array.dtype.hasobject:
        texts = map(_as_bytes, array.reshape(-1).tolist())
        return b"".join(part for text in texts for part in (len(text).to_bytes(4, "little"), text))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _as_bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
