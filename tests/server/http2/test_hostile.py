"""Peers that break HTTP/2: each is told so by the right code, and others are served on."""

import random
import resource
import socket
import time

import pytest

from server.http2.wire import frames
from server.http2.wire.frames import ErrorCode, Http2Setting, frame, window_update
from server.http2.wire.hpack import literal
from support.costs import costs_less_than
from support.http2 import POST, Raw, ask, data, message, serving, to, works

HEADERS, DATA, END = frames.HEADERS, frames.DATA, frames.END_STREAM
BOTH = frames.END_HEADERS | frames.END_STREAM


@pytest.fixture(scope="module")
def server():
    with serving() as opened:
        yield opened


@pytest.fixture
def neighbour(server):
    """A client that did nothing wrong, and is served before and after."""
    with Raw(server.port) as raw:
        assert works(raw, 1)
        yield raw
        assert works(raw, 3)


def setting(number: int, value: int) -> bytes:
    payload = number.to_bytes(2, "big") + value.to_bytes(4, "big")
    return frame(frames.SETTINGS, 0, 0, payload)


def word(number: int) -> bytes:
    return number.to_bytes(4, "big")


def continued(count: int, part: bytes = b"") -> bytes:
    begun = frame(HEADERS, 0, 1, literal(POST))
    return begun + frame(frames.CONTINUATION, 0, 1, part) * count


WEIGHT = b"\0" * 5
DONE = ask(1) + data(1, message(b"x"))
"""A whole call on stream 1."""
NOWHERE = to("/t/Nowhere")

SENT_AWAY = {
    "a frame on stream 0": (data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an even stream": (ask(2), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on stream 0": (ask(0), ErrorCode.PROTOCOL_ERROR),
    "DATA on a stream never opened": (data(7, b"x"), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM on a stream never opened": (
        frame(frames.RST_STREAM, 0, 7, word(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "WINDOW_UPDATE on a stream never opened": (window_update(7, 1), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of 3 bytes": (
        ask(1) + frame(frames.RST_STREAM, 0, 1, b"abc"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "WINDOW_UPDATE of 5 bytes": (
        frame(frames.WINDOW_UPDATE, 0, 0, b"abcde"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "WINDOW_UPDATE of 0": (window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "a window too large": (window_update(0, frames.MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
    "a stream window too large by settings": (
        ask(1, to("/t/Wait"))
        + window_update(1, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
        + setting(Http2Setting.INITIAL_WINDOW_SIZE, frames.MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "PING of 7 bytes": (frame(frames.PING, 0, 0, b"seven.."), ErrorCode.FRAME_SIZE_ERROR),
    "PING on a stream": (frame(frames.PING, 0, 1, b"eight..."), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS on a stream": (frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS of 5 bytes": (
        frame(frames.SETTINGS, 0, 0, b"abcde"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "SETTINGS ACK with payload": (
        frame(frames.SETTINGS, frames.ACK, 0, b"abcdef"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "ENABLE_PUSH 2": (setting(Http2Setting.ENABLE_PUSH, 2), ErrorCode.PROTOCOL_ERROR),
    "MAX_FRAME_SIZE too small": (
        setting(Http2Setting.MAX_FRAME_SIZE, 16383),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "MAX_FRAME_SIZE too large": (
        setting(Http2Setting.MAX_FRAME_SIZE, 1 << 24),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "INITIAL_WINDOW_SIZE too large": (
        setting(Http2Setting.INITIAL_WINDOW_SIZE, 1 << 31),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "PUSH_PROMISE": (frame(frames.PUSH_PROMISE, 0, 1, word(2)), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY on a stream": (frame(frames.GOAWAY, 0, 1, b"\0" * 8), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY of 4 bytes": (frame(frames.GOAWAY, 0, 0, word(0)), ErrorCode.FRAME_SIZE_ERROR),
    "PRIORITY of stream 0": (
        frame(frames.PRIORITY, 0, 0, b"\0" * 5),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "PRIORITY of 4 bytes": (frame(frames.PRIORITY, 0, 1, word(0)), ErrorCode.FRAME_SIZE_ERROR),
    "a frame over the limit": (frames.HEAD.pack(2, 1, DATA, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
    "CONTINUATION of nothing": (frame(frames.CONTINUATION, 4, 1), ErrorCode.PROTOCOL_ERROR),
    "another frame inside a header block": (
        frame(HEADERS, 0, 1, literal(POST)) + frame(frames.PING, 0, 0, b"eight..."),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "an unknown frame inside a header block": (
        frame(HEADERS, 0, 1, literal(POST)) + frame(0x77, 0, 1),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "CONTINUATION of another stream": (
        frame(HEADERS, 0, 1, literal(POST)) + frame(frames.CONTINUATION, 4, 3),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a flood of CONTINUATION": (continued(1000), ErrorCode.ENHANCE_YOUR_CALM),
    "a header block too large": (continued(3, b"\0" * 16_000), ErrorCode.ENHANCE_YOUR_CALM),
    "a block HPACK does not know": (
        frame(HEADERS, 4, 1, b"\xff\xff"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "padding as long as its frame": (
        ask(1) + frame(DATA, frames.PADDED, 1, b"\x05abcd"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "padding that is not there": (
        ask(1) + frame(DATA, frames.PADDED, 1),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "priority that is not there": (
        frame(HEADERS, frames.PRIORITISED | BOTH, 1, b"\x82"),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a flood of PING": (
        frame(frames.PING, 0, 0, b"eight...") * 20_000,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of SETTINGS": (frame(frames.SETTINGS, 0, 0) * 5000, ErrorCode.ENHANCE_YOUR_CALM),
    "a flood of PRIORITY": (
        frame(frames.PRIORITY, 0, 1, b"\0" * 5) * 20_000,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of empty DATA": (
        ask(1) + frame(DATA, 0, 1) * 20_000,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "a flood of unknown frames": (frame(0x77, 0, 0) * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    "rapid resets": (
        b"".join(
            ask(number, to("/t/Wait")) + frame(frames.RST_STREAM, 0, number, word(8))
            for number in range(1, 14_001, 2)
        ),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "rapid resets by us": (
        b"".join(ask(number) + window_update(number, 0) for number in range(1, 14_001, 2)),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("case", SENT_AWAY)
def test_who_breaks_the_connection_is_sent_away(server, neighbour, case):
    sent, code = SENT_AWAY[case]
    with Raw(server.port) as raw:
        raw.send(sent)
        assert raw.goaway() == code


RESET = {
    "headers that are no request": (ask(1, POST[1:]), ErrorCode.PROTOCOL_ERROR),
    "DATA behind the request": (
        ask(1, to("/t/Wait")) + data(1, message(b"x")) + data(1, b"x"),
        ErrorCode.STREAM_CLOSED,
    ),
    "HEADERS behind the request": (
        ask(1, to("/t/Wait")) + data(1, message(b"x")) + ask(1, flags=BOTH),
        ErrorCode.STREAM_CLOSED,
    ),
    "DATA on a stream that has ended": (DONE + data(1, b"x"), ErrorCode.STREAM_CLOSED),
    "HEADERS on a stream that has ended": (DONE + ask(1), ErrorCode.STREAM_CLOSED),
    "trailers that end nothing": (ask(1) + ask(1), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE of 0": (
        ask(1, to("/t/Wait")) + window_update(1, 0),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a window too large": (
        ask(1, to("/t/Wait")) + window_update(1, frames.MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "less than content-length said": (
        ask(1, (*POST, (b"content-length", b"7"))) + data(1, message(b"x")),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "more than content-length said": (
        ask(1, (*POST, (b"content-length", b"5"))) + data(1, message(b"x")),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "more than the stream's window": (
        ask(1, to("/t/Sip")) + b"".join(data(1, message(b"x" * (2**17 - 5)), 0) for _ in range(70)),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("case", RESET)
def test_who_breaks_a_stream_loses_that_stream(server, case):
    sent, code = RESET[case]
    with Raw(server.port) as raw:
        raw.send(sent)
        assert raw.reset(1) == code
        assert works(raw, 3)


def test_a_stream_over_the_count_is_refused_and_its_headers_are_read(server):
    with Raw(server.port) as raw:
        raw.send(*(ask(number, to("/t/Wait")) for number in range(1, 2001, 2)))
        # this one puts its path into the table, and the next refers to it
        path = b"\x40" + literal(((b":path", b"/t/Echo"),))[1:]
        rest = literal(tuple(field for field in POST if field[0] != b":path"))
        raw.send(frame(HEADERS, frames.END_HEADERS, 2001, path + rest))
        assert raw.reset(2001) == ErrorCode.REFUSED_STREAM
        raw.send(frame(frames.RST_STREAM, 0, 1, word(ErrorCode.CANCEL)))
        raw.send(frame(HEADERS, frames.END_HEADERS, 2003, b"\xbe" + rest), data(2003, message(b"")))
        assert raw.status(2003) == 0


def test_what_is_legal_and_odd_is_served(server):
    block = literal(POST)
    padded = b"\3" + message(b"padded") + b"\0\0\0"
    with Raw(server.port) as raw:
        raw.send(
            frame(frames.PRIORITY, 0, 9, b"\0" * 5),
            frame(0x77, 0xFF, 5, b"unknown"),
            setting(0x99, 1),
            frame(
                HEADERS, frames.PADDED | frames.PRIORITISED, 1, b"\2" + WEIGHT + block[:9] + b"\0\0"
            ),
            frame(frames.CONTINUATION, 0, 1),
            frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]),
            data(1, padded, frames.PADDED),
            frame(DATA, 0, 1),
            ask(1, ((b"trailing", b"1"),), BOTH),
            frame(frames.GOAWAY, 0, 0, b"\0" * 8),
        )
        assert raw.next(DATA, 1)[1] == message(b"padded")
        assert raw.status(1) == 0
        assert works(raw, 3)


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/1"]
)
def test_who_speaks_no_HTTP_2_is_told_what_this_port_speaks(server, greeting):
    with Raw(server.port, greet=False) as raw:
        raw.send(greeting)
        assert b"this port serves gRPC" in raw.next(frames.GOAWAY)[1]


def test_the_first_frame_must_be_settings(server):
    with Raw(server.port, greet=False) as raw:
        raw.send(frames.PREFACE, frame(frames.PING, 0, 0, b"eight..."))
        assert raw.goaway() == ErrorCode.PROTOCOL_ERROR


def test_who_has_us_answer_and_never_reads_is_cut_off(server):
    with Raw(server.port) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            ask_on(raw)


def ask_on(raw: Raw) -> None:
    for first in range(1, 1 << 21, 1000):
        raw.send(*(ask(number, NOWHERE, BOTH) for number in range(first, first + 1000, 2)))


def whole_calls() -> bytes:
    return b"".join(
        (
            frames.PREFACE,
            frames.settings({Http2Setting.INITIAL_WINDOW_SIZE: 1 << 20}),
            DONE,
            ask(3, to("/t/Talk")) + data(3, message(b"one"), 0) + data(3, message(b"two")),
            ask(5, to("/t/Wait")) + data(5, message(b"x")),
            frame(frames.RST_STREAM, 0, 5, word(8)),
            window_update(0, 1000),
            frame(frames.PING, 0, 0, b"eight..."),
            ask(7, to("/t/Refuse")) + data(7, message(b"no")),
        )
    )


def mutated(dice: random.Random, sent: bytes) -> bytes:
    changed = bytearray(sent)
    for _ in range(dice.randrange(1, 9)):
        place = dice.randrange(len(frames.PREFACE) if dice.random() < 0.9 else 0, len(changed))
        match dice.randrange(4):
            case 0:
                changed[place] = dice.randrange(256)
            case 1:
                changed[place] ^= 1 << dice.randrange(8)
            case 2:
                del changed[place : place + dice.randrange(1, 12)]
            case _:
                changed[place:place] = dice.randbytes(dice.randrange(1, 12))
    return bytes(changed)


def test_two_thousand_mutated_connections_do_no_harm(server, neighbour):
    dice, sent = random.Random(20261121), whole_calls()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2000):
        with Raw(server.port, greet=False) as raw:
            raw.send(mutated(dice, sent))
            raw.socket.shutdown(socket.SHUT_WR)
            while not raw.closed:
                raw._read()
    assert server.unexpected == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_a_second_message_where_one_is_taken_ends_the_call_at_once(server, neighbour):
    """Whoever sends on without end is not listened to, and nothing of it is kept."""
    with Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Refuse")), data(1, message(b"one") + message(b"two"), 0))
        assert raw.status(1) == 12
        assert raw.reset(1) == ErrorCode.NO_ERROR
        assert works(raw, 3)


def test_one_frame_of_many_settings_is_no_work(server, neighbour):
    """Each moved the window of every stream: 3.6 s of the loop for these 126 KB."""
    assert costs_less_than(20, lambda: settings_s(server, 900), lambda: settings_s(server, 1))


def settings_s(server, streams: int) -> float:
    """CPU seconds of the quickest of three such frames on a connection with so many streams."""
    pairs = [
        int(Http2Setting.INITIAL_WINDOW_SIZE).to_bytes(2, "big") + word(65_535 + number % 2)
        for number in range(21_001)
    ]
    took_s = []
    with Raw(server.port) as raw:
        raw.send(*(ask(number, to("/t/Wait")) for number in range(1, 2 * streams, 2)))
        raw.ping()
        for _ in range(3):
            began_s = server.on_loop(time.thread_time)
            raw.send(frame(frames.SETTINGS, 0, 0, b"".join(pairs)))
            raw.ping()
            took_s.append(server.on_loop(time.thread_time) - began_s)
        assert works(raw, 2 * streams + 1)
    return min(took_s)


def test_many_answers_do_not_pay_for_a_flood(server, neighbour):
    with Raw(server.port) as raw:
        for first in range(1, 10_001, 200):
            numbers = range(first, first + 200, 2)
            raw.send(*(ask(number) + data(number, message(b"x")) for number in numbers))
            raw.ping()
        raw.send(frame(frames.PING, 0, 0, b"eight...") * 26_000)
        assert raw.goaway() == ErrorCode.ENHANCE_YOUR_CALM
