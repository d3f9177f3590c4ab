"""Bodies are inflated within bounds."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from repository.git.body import bounded, gunzip
from repository.git.errors import BadBody, BodyTooLarge


async def pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def inflated(content: bytes, most_bytes: int = 10_000, size: int = 7) -> bytes:
    async def main() -> bytes:
        return b"".join([piece async for piece in gunzip(pieces(content, size), most_bytes)])

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_compressed_body_is_inflated_however_it_is_cut(size: int):
    content = bytes(range(256)) * 30
    assert inflated(gzip.compress(content), size=size) == content


def test_a_bomb_is_refused_before_it_unfolds():
    bomb = gzip.compress(bytes(50 * 2**20))
    with pytest.raises(BodyTooLarge, match="inflates to more than 10000 bytes"):
        inflated(bomb, size=len(bomb))


def test_a_body_may_have_just_as_much_as_allowed():
    assert len(inflated(gzip.compress(bytes(10_000)))) == 10_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"0000", "is not gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-3], "ends early"),
        (b"", "ends early"),
        (gzip.compress(b"x", mtime=0) + b"more", "goes on after its end"),
    ],
)
def test_what_is_not_one_gzip_stream_is_refused(content: bytes, text: str):
    with pytest.raises(BadBody, match=text):
        inflated(content)


def test_a_bounded_body_ends_with_an_error():
    async def main() -> None:
        body = bounded(pieces(b"x" * 20, 5), 12)
        assert [await anext(body), await anext(body)] == [b"xxxxx", b"xxxxx"]
        with pytest.raises(BodyTooLarge, match="more than 12 bytes"):
            await anext(body)

    asyncio.run(main())
