"""Frames that cost us more than they cost a client are priced by their bytes."""

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from server.http2.calls.head import read_head
from server.http2.header_blocks import HeaderBlocks
from server.http2.wire import frames
from server.http2.wire.frames import END_HEADERS, ErrorCode, Http2Setting, frame, window_update
from server.http2.wire.hpack import literal
from support.http2 import POST, Raw, ask, data, message, serving, to, works

PAIR = int(Http2Setting.HEADER_TABLE_SIZE).to_bytes(2, "big") + bytes(4)


def large_head(number: int) -> bytes:
    """A request with 15 KiB of metadata, unlike the others."""
    return ask(2 * number + 1, (*POST, (b"k", b"%d" % number + b"x" * 15_000)), END_HEADERS | 1)


FLOODS = {
    "large header lists": large_head,
    "large SETTINGS": lambda _: frame(frames.SETTINGS, 0, 0, PAIR * 20_000),
    "windows opened by one byte": lambda _: window_update(0, 1) * 100,
}


@pytest.fixture
def server():
    with serving() as opened:
        yield opened


@pytest.mark.parametrize("case", FLOODS)
def test_a_flood_ends_its_connection_and_no_other(server, case):
    with Raw(server.port) as raw, Raw(server.port) as other:
        with pytest.raises((OSError, AssertionError)):
            flood(raw, FLOODS[case])
        assert works(other, 1)


def flood(raw: Raw, frames_of: Callable[[int], bytes]) -> None:
    """Thousands of them. Raises AssertionError or OSError when the connection ends."""
    for number in range(4000):
        raw.send(frames_of(number))
        if number % 16 == 15:
            raw.ping()


def test_the_flood_is_named_to_its_client(server):
    with Raw(server.port) as raw:
        raw.send(window_update(0, 1) * 20_000)
        assert raw.goaway() == ErrorCode.ENHANCE_YOUR_CALM


def test_a_few_large_heads_are_served(server):
    with Raw(server.port) as raw:
        raw.send(*(large_head(number) for number in range(20)))
        raw.ping()
        assert works(raw, 101)


def test_errors_nobody_reads_are_bounded_by_their_bytes(server):
    """Each refusal is 6 KiB of trailers: a thousand pieces are more than the socket takes."""
    with Raw(server.port) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        text = message(b"n" * 6000)
        with suppress(OSError):  # the last of them may just go into the socket's buffers
            ask_and_never_read(raw, text)
        server.wait_for(lambda: not server.listener._connections, "the client to be cut off")


def ask_and_never_read(raw: Raw, text: bytes) -> None:
    """Thousands of calls that fail in these words. Raises OSError when the connection ends."""
    for number in range(20_000):
        stream_id = 2 * number + 1
        raw.send(ask(stream_id, to("/t/Refuse")), data(stream_id, text))


def test_heads_are_remembered_up_to_a_bound():
    class Service:
        read = staticmethod(read_head)

    blocks = HeaderBlocks(Service(), lambda size: None)
    for number in range(60):
        blocks.read(literal((*POST, (b"k", b"%d" % number + b"x" * 10_000))))
        assert sum(len(data) for data in blocks._heads) <= 128 * 1024
