"""Nobody sends faster than the other reads, and no stream starves another."""

import time
from contextlib import suppress

import pytest

from server.http2.calls.streaming_call import HELD_BYTES
from server.http2.limits import unbounded
from server.http2.sender import ROOM_BYTES
from server.http2.session import CONNECTION_WINDOW
from server.http2.stream import STREAM_WINDOW
from server.http2.wire import frames
from server.http2.wire.frames import window_update
from support.http2 import LIMIT, LOOPS, Raw, ask, data, message, serving, to, works

BIG = 2**20


@pytest.fixture
def server():
    with serving() as opened:
        yield opened


def drink(raw: Raw, stream_id: int, size: int) -> bytes:
    """That many bytes of DATA on a stream."""
    found = bytearray()
    while len(found) < size:
        found += raw.next(frames.DATA, stream_id)[1]
    return bytes(found)


def test_a_writer_waits_for_the_clients_window(server):
    with Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Pour")), data(1, message(b"10000")))
        drink(raw, 1, frames.DEFAULT_WINDOW)
        raw.ping()
        written = server.on_loop(lambda: server.written)
        assert written <= frames.DEFAULT_WINDOW + ROOM_BYTES + 20_000
        raw.send(window_update(1, 50_000), window_update(0, 50_000))
        drink(raw, 1, 50_000)
        server.wait_for(lambda: server.written > written, "the writer to go on")


ROOMY = {"initial_window_size": frames.MAX_WINDOW}
STALL_S = 0.5


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_takes_none_of_its_answer_is_cut_off(loop):
    with (
        serving(loop, limits=unbounded(LIMIT)._replace(send_timeout_s=STALL_S)) as server,
        Raw(server.port, **ROOMY) as raw,
    ):
        raw.send(window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW))
        raw.send(ask(1, to("/t/Pour")), data(1, message(b"%d" % BIG)))
        drink(raw, 1, 1)
        server.wait_for(lambda: not server.listener._connections, "the client to be cut off")
        with Raw(server.port) as other:
            assert works(other, 1)


def test_a_client_that_takes_its_answer_slowly_is_waited_for():
    assert any(outlives_the_patience() for _ in range(5))  # unless the machine itself pauses


def outlives_the_patience() -> bool:
    """Whether a slow client is there after three times as long as one may take nothing."""
    with (
        serving(limits=unbounded(LIMIT)._replace(send_timeout_s=STALL_S)) as server,
        Raw(server.port, **ROOMY) as raw,
    ):
        raw.send(window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW))
        raw.send(ask(1, to("/t/Pour")), data(1, message(b"%d" % BIG)))
        deadline = time.monotonic() + 3 * STALL_S
        while time.monotonic() < deadline and not raw.closed:
            with suppress(AssertionError):  # closed
                drink(raw, 1, 4 * BIG)
            time.sleep(STALL_S / 5)  # the client's own pace is what is tested
        return len(server.listener._connections) == 1


def test_what_fits_no_window_leaves_as_it_opens(server):
    with Raw(server.port) as raw:
        raw.send(window_update(0, 10 * BIG))
        raw.send(ask(1), *chunks(1, message(b"x" * BIG)))
        found = drink(raw, 1, frames.DEFAULT_WINDOW)
        while len(found) < BIG + 5:
            raw.send(window_update(1, 100_000))
            found += drink(raw, 1, min(100_000, BIG + 5 - len(found)))
        assert found == message(b"x" * BIG)
        assert raw.status(1) == 0


def chunks(stream_id: int, body: bytes) -> list[bytes]:
    size = 100_000
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    last = len(parts) - 1
    return [
        data(stream_id, part, frames.END_STREAM if place == last else 0)
        for place, part in enumerate(parts)
    ]


def test_a_window_that_shrinks_below_zero_holds_until_it_has_grown(server):
    with Raw(server.port) as raw:
        raw.send(ask(1), *chunks(1, message(b"x" * BIG)))
        drink(raw, 1, frames.DEFAULT_WINDOW)
        setting = frames.settings({frames.Http2Setting.INITIAL_WINDOW_SIZE: 1000})
        raw.send(setting, window_update(0, 10 * BIG), window_update(1, 60_000))
        raw.ping()
        raw.send(window_update(1, 10_000))  # 65,535 lent, 1000 + 70,000 allowed
        assert len(raw.next(frames.DATA, 1)[1]) == 1000 + 70_000 - frames.DEFAULT_WINDOW


def test_two_large_answers_share_the_connection(server):
    with Raw(server.port, initial_window_size=2**30) as raw:
        for stream_id in (1, 3):
            raw.send(ask(stream_id), *chunks(stream_id, message(b"x" * BIG)))
        drink_any(raw, frames.DEFAULT_WINDOW)
        raw.ping()
        raw.send(window_update(0, 8 * frames.DEFAULT_FRAME_BYTES))
        turns = [stream_id for stream_id, _ in drink_any(raw, 8 * frames.DEFAULT_FRAME_BYTES)]
        assert sorted(turns[:4]) == [1, 1, 3, 3]
        assert works_beside(raw)


def drink_any(raw: Raw, size: int) -> list[tuple[int, int]]:
    """(stream, bytes) of the DATA frames that make up `size`, on any stream."""
    found: list[tuple[int, int]] = []
    while sum(each for _, each in found) < size:
        while not raw._seen:
            assert raw._read()
        kind, _, stream_id, payload = raw._seen.pop(0)
        if kind == frames.DATA:
            found.append((stream_id, len(payload)))
    return found


def works_beside(raw: Raw) -> bool:
    """Whether a small call is answered while large answers wait for the stream's window."""
    raw.send(window_update(0, 10 * BIG))
    return works(raw, 5)


def test_a_client_may_send_only_what_is_taken(server):
    """One message is taken; the window then stays shut beyond what may be held."""
    with Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Sip")))
        granted, sent = STREAM_WINDOW, 0
        piece = message(b"x" * (100_000 - 5))
        while sent + len(piece) <= granted:
            raw.send(data(1, piece, 0))
            sent += len(piece)
            raw.ping()
            granted = STREAM_WINDOW + raw.granted[1]
        assert HELD_BYTES < sent <= HELD_BYTES + STREAM_WINDOW + 2 * len(piece)
        assert works(raw, 3)


def test_one_message_may_be_larger_than_every_window(server):
    with Raw(server.port, initial_window_size=2**30) as raw:
        raw.send(window_update(0, 2**30))
        body = message(b"x" * (CONNECTION_WINDOW + STREAM_WINDOW))
        raw.send(ask(1))
        *parts, last = chunks(1, body)
        for part in parts:
            raw.send(part)
            raw.ping()
        raw.send(last)  # a ping would skip what is answered before it
        assert drink(raw, 1, len(body)) == body
