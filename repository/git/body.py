"""Bodies of git's requests: bounded, and inflated where the client has compressed them."""

import zlib
from collections.abc import AsyncIterator

from repository.git.errors import BadBody, BodyTooLarge

_PIECE_BYTES = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS


async def bounded(body: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """The same bytes; raises `BodyTooLarge` instead of one too many."""
    left = most_bytes
    async for chunk in body:
        left -= len(chunk)
        if left < 0:
            raise BodyTooLarge(f"the request has more than {most_bytes} bytes")
        yield chunk


async def gunzip(body: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """A gzip body inflated in pieces of at most 64 KiB, `most_bytes` in all.

    Raises `BadBody` when it is no gzip, ends early or goes on after its end, and `BodyTooLarge`.
    """
    inflating = zlib.decompressobj(_GZIP)
    left = most_bytes
    async for chunk in body:
        while chunk:
            if inflating.eof:
                raise BadBody("the gzip body goes on after its end")
            piece = _inflate(inflating, chunk)
            left -= len(piece)
            if left < 0:
                raise BodyTooLarge(f"the request inflates to more than {most_bytes} bytes")
            if piece:
                yield piece
            chunk = inflating.unconsumed_tail or inflating.unused_data
    if not inflating.eof:
        raise BadBody("the gzip body ends early")


def _inflate(inflating: "zlib._Decompress", chunk: bytes) -> bytes:
    try:
        return inflating.decompress(chunk, _PIECE_BYTES)
    except zlib.error as error:
        raise BadBody(f"the body is not gzip: {error}") from error
