"""A listener that stops: what is inside is answered, what comes late goes elsewhere."""

import threading
import time

import grpc
import pytest

from server.http2 import connection
from server.http2.wire import frames
from server.http2.wire.frames import ErrorCode, frame
from support.http2 import LOOPS, Raw, ask, data, message, serving, to


def stop(server, grace_s: float) -> threading.Thread:
    """Stop the listener, on a thread of its own."""
    thread = threading.Thread(target=server.on_loop, args=(lambda: server.listener.stop(grace_s),))
    thread.start()
    return thread


def goaway(raw: Raw) -> tuple[int, ErrorCode]:
    """(last stream, code) of the next GOAWAY."""
    _, payload = raw.next(frames.GOAWAY)
    last, code = (int.from_bytes(payload[at : at + 4], "big") for at in (0, 4))
    return last, ErrorCode(code)


@pytest.mark.parametrize("loop", LOOPS)
def test_two_goaways_frame_the_last_requests(loop, monkeypatch):
    monkeypatch.setattr(connection, "DRAIN_ECHO_S", 60.0)
    with serving(loop) as server, Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Wait")), data(1, message(b"x")))
        raw.ping()
        stopping = stop(server, 600.0)
        assert goaway(raw) == (frames.MAX_ID, ErrorCode.NO_ERROR)
        _, ping = raw.next(frames.PING)
        raw.send(ask(3), data(3, message(b"on its way")))
        assert raw.status(3) == 0
        raw.send(frame(frames.PING, frames.ACK, 0, ping))
        assert goaway(raw) == (3, ErrorCode.NO_ERROR)
        raw.send(ask(5), data(5, message(b"too late")))
        assert raw.reset(5) == ErrorCode.REFUSED_STREAM
        server.answer_waiting()
        assert raw.status(1) == 0
        while not raw.closed:
            raw._read()
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_client_that_answers_no_ping_is_drained_all_the_same():
    with serving() as server, Raw(server.port) as raw:
        raw.ping()
        stopping = stop(server, 600.0)
        assert goaway(raw) == (frames.MAX_ID, ErrorCode.NO_ERROR)
        assert goaway(raw) == (0, ErrorCode.NO_ERROR)
        stopping.join(60)
        assert not stopping.is_alive()


@pytest.mark.parametrize("loop", LOOPS)
def test_the_last_frames_are_written_once_and_nothing_after_the_end(loop):
    """The window opens for the last answer while the listener stops: END_STREAM closes."""
    with serving(loop) as server, Raw(server.port, initial_window_size=0) as raw:
        raw.send(ask(1), data(1, message(b"x" * 1000)))
        raw.ping()
        stopping = stop(server, 600.0)
        _, ping = raw.next(frames.PING)
        raw.send(frame(frames.PING, frames.ACK, 0, ping))
        assert goaway(raw) == (1, ErrorCode.NO_ERROR)
        raw.send(frames.window_update(1, 5000))
        assert raw.next(frames.DATA, 1)[1] == message(b"x" * 1000)
        assert raw.status(1) == 0
        while not raw.closed:
            raw._read()
        assert raw._seen == []
        stopping.join(60)


def test_what_is_not_answered_in_time_is_cut_off():
    with serving() as server, grpc.insecure_channel(server.url) as channel:
        calls = [channel.unary_unary(path).future(b"x") for path in ("/t/Wait", "/t/Sleep")]
        server.wait_for(lambda: bool(server.waiting), "the call to be inside")
        before = time.monotonic()
        server.on_loop(lambda: server.listener.stop(0.3))
        assert 0.2 < time.monotonic() - before < 50
        assert server.cancelled == 2
        for call in calls:
            with pytest.raises(grpc.RpcError) as refused:
                call.result(timeout=60)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_that_never_greeted_is_closed_at_once():
    with serving() as server, Raw(server.port, greet=False) as raw:
        server.wait_for(lambda: bool(server.listener._connections), "the connection")
        server.on_loop(lambda: server.listener.stop(600.0))
        while not raw.closed:
            raw._read()


def test_no_request_fails_while_the_server_is_replaced_under_load():
    """Two servers behind one name: when the first drains, its client goes on with the second."""
    with serving() as first, serving() as second:
        target = f"ipv4:127.0.0.1:{first.port},127.0.0.1:{second.port}"
        done, failed = [0], []
        ending = threading.Event()

        def press(channel: grpc.Channel) -> None:
            echo = channel.unary_unary("/t/Echo")
            while not ending.is_set():
                try:
                    assert echo(b"x" * 100, timeout=60) == b"x" * 100
                    done[0] += 1
                except grpc.RpcError as error:
                    failed.append(error)

        with grpc.insecure_channel(target) as channel:
            threads = [threading.Thread(target=press, args=(channel,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            first.wait_for(lambda: done[0] > 200, "some traffic")
            assert first.on_loop(lambda: bool(first.listener._connections))
            stopping = stop(first, 50.0)
            stopping.join(60)
            reached = done[0]
            first.wait_for(lambda: done[0] > reached + 200, "traffic to the second")
            ending.set()
            for thread in threads:
                thread.join()
        assert failed == []
        assert not stopping.is_alive()
