"""Frames on an event loop, against the blocking end at the other side."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repository.process.channel import HEADER_BYTES, Channel, ChannelMessage, header
from repository.process.loop_channel import LoopChannel

MOST = 1 << 20
PATIENCE_S = 30.0


class _Heard:
    """What one end was told."""

    def __init__(self) -> None:
        self.messages: list[ChannelMessage] = []
        self.ended: list[Exception | None] = []


class _Refused(socket.socket):
    """An end to which the kernel gives no memory so many times."""

    refusals = 0

    def sendmsg(self, *arguments: object) -> int:  # type: ignore[override]
        return self._unless_refused(super().sendmsg, *arguments)

    def send(self, *arguments: object) -> int:  # type: ignore[override]
        return self._unless_refused(super().send, *arguments)

    def _unless_refused(self, send: Callable[..., int], *arguments: object) -> int:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return send(*arguments)


def _refused(end: socket.socket, refusals: int) -> _Refused:
    refused = _Refused(fileno=end.detach())
    refused.refusals = refusals
    return refused


@contextmanager
def _pair(
    refusals: int = 0,
) -> Iterator[tuple[asyncio.AbstractEventLoop, LoopChannel, socket.socket, _Heard]]:
    ours, theirs = socket.socketpair()
    heard = _Heard()
    loop = asyncio.new_event_loop()
    channel = LoopChannel(
        _refused(ours, refusals), loop, MOST, heard.messages.append, heard.ended.append
    )
    try:
        yield loop, channel, theirs, heard
    finally:
        channel.close()
        theirs.close()
        loop.close()


def _run_until(loop: asyncio.AbstractEventLoop, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        loop.run_until_complete(asyncio.sleep(0))


@settings(max_examples=30, deadline=None)
@given(payloads=st.lists(st.binary(max_size=300), max_size=8), cuts=st.lists(st.integers(1, 400)))
def test_messages_arrive_whole_and_in_order_however_their_bytes_are_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    wire = b"".join(header(one) + one for one in payloads)
    with _pair() as (loop, _, theirs, heard):
        for cut in cuts:
            if wire:
                theirs.sendall(wire[:cut])
                wire = wire[cut:]
                loop.run_until_complete(asyncio.sleep(0))
        theirs.sendall(wire)
        _run_until(loop, lambda: len(heard.messages) == len(payloads))
        assert [message.payload for message in heard.messages] == payloads


def test_descriptors_travel_both_ways_and_are_closed_once() -> None:
    with _pair() as (loop, channel, theirs, heard):
        reader, writer = os.pipe()
        peer = Channel(theirs)
        peer.send(b"look", reader)
        _run_until(loop, lambda: bool(heard.messages))
        os.write(writer, b"here")
        assert os.read(heard.messages[0].fd, 9) == b"here"
        os.close(heard.messages[0].fd)
        channel.send(b"back", writer)
        received = peer.receive(PATIENCE_S)
        assert received.payload == b"back"
        os.write(received.fd, b"again")
        assert os.read(reader, 9) == b"again"
        os.close(received.fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.close(writer)
        os.close(reader)


def test_slow_reader_gets_everything_and_is_not_read_meanwhile() -> None:
    payload = b"x" * 100_000
    with _pair() as (loop, channel, theirs, heard):
        for _ in range(80):
            channel.send(payload)
        Channel(theirs).send(b"a question")
        loop.run_until_complete(asyncio.sleep(0.01))
        assert heard.messages == []
        theirs.settimeout(PATIENCE_S)
        wanted = 80 * (HEADER_BYTES + len(payload))
        received = 0
        while received < wanted:
            with suppress(BlockingIOError, TimeoutError):
                theirs.settimeout(0.01)
                received += len(theirs.recv(1 << 20))
            loop.run_until_complete(asyncio.sleep(0))
        _run_until(loop, lambda: bool(heard.messages))
        assert received == wanted
        assert heard.messages[0].payload == b"a question"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ((MOST + 1).to_bytes(4, "little"), "a message of"),
        ((1 << 31 | 1).to_bytes(4, "little") + b"x", "without the descriptor"),
    ],
    ids=["too long", "without its descriptor"],
)
def test_what_is_no_message_ends_the_channel_with_the_reason(wire: bytes, reason: str) -> None:
    with _pair() as (loop, channel, theirs, heard):
        theirs.sendall(wire)
        _run_until(loop, lambda: bool(heard.ended))
        assert reason in str(heard.ended[0])
        channel.send(b"nobody reads this")
        assert theirs.recv(9) == b""


def test_peer_that_leaves_ends_the_channel_without_a_reason() -> None:
    with _pair() as (loop, _, theirs, heard):
        theirs.close()
        _run_until(loop, lambda: bool(heard.ended))
        assert heard.ended == [None]


def test_messages_that_the_kernel_had_no_memory_for_arrive_later_with_their_descriptors() -> None:
    with _pair(refusals=2) as (loop, channel, theirs, heard):
        reader, writer = os.pipe()
        channel.send(b"first", reader)
        channel.send(b"second")
        theirs.setblocking(False)
        peer, came = Channel(theirs), list[ChannelMessage]()

        def all_came() -> bool:
            with suppress(BlockingIOError):
                came.append(peer.receive(0))
            return len(came) == 2

        _run_until(loop, all_came)
        assert [one.payload for one in came] == [b"first", b"second"]
        os.write(writer, b"here")
        assert os.read(came[0].fd, 9) == b"here"
        Channel(theirs).send(b"still read")
        _run_until(loop, lambda: bool(heard.messages))
        assert heard.ended == []
        os.close(writer)
        os.close(came[0].fd)


def test_a_channel_that_gets_no_memory_for_long_ends_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("repository.process.loop_channel.SHORTAGE_SECS", 0.06)
    with _pair(refusals=1000) as (loop, channel, _, heard):
        channel.send(b"never")
        _run_until(loop, lambda: bool(heard.ended))
        assert str(heard.ended[0]) == "[Errno 105] No buffer space available"


def test_the_blocking_end_sends_again_what_the_kernel_had_no_memory_for() -> None:
    with _pair() as (loop, _, theirs, heard):
        reader, writer = os.pipe()
        theirs = _refused(theirs, 2)
        Channel(theirs).send(b"whole", writer)
        _run_until(loop, lambda: bool(heard.messages))
        assert heard.messages[0].payload == b"whole"
        for fd in (reader, writer, heard.messages[0].fd):
            os.close(fd)
        theirs.close()
