"""Half-sent messages and unread answers: bounded memory, for a bounded time, and all given back."""

import random
import threading
import zlib
from contextlib import ExitStack

import grpc
import pytest

from server.buffers import CONNECTION_BYTES, BufferBudget
from server.http2.calls.messages import OVERHEAD_BYTES
from server.http2.limits import GrpcLimits
from server.http2.stream_capacity import FREE_STREAMS, STREAM_BYTES
from server.http2.wire import frames
from server.http2.wire.frames import ErrorCode, rst_stream, window_update
from support.http2 import POST, Raw, Served, ask, data, message, serving, to, works
from support.tls import make_certificates, server_context

MIB = 2**20
BUDGET = 64 * MIB
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
DEADLINE = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]


def limits(budget: int = BUDGET, timeout_s: float = 60.0) -> GrpcLimits:
    return GrpcLimits(2**31 - 1, BufferBudget(budget), timeout_s, timeout_s)


@pytest.fixture
def server():
    with serving(limits=limits()) as opened:
        yield opened


def held(server: Served) -> int:
    return server.on_loop(lambda: server.listener._limits.budget.held)


def nothing_is_held(server: Served, connections: int = 0) -> None:
    server.wait_for(
        lambda: held(server) == connections * CONNECTION_BYTES, "all memory to be given back", 20
    )


def prefix(size: int) -> bytes:
    return b"\0" + size.to_bytes(4, "big")


def test_a_handshake_that_fails_holds_nothing(tmp_path):
    tls = server_context(make_certificates(tmp_path))
    with serving(limits=limits(), tls=tls) as server, ExitStack() as stack:
        clients = [stack.enter_context(Raw(server.port, greet=False)).socket for _ in range(20)]
        for client in clients:
            client.sendall(b"no handshake\r\n")
        for client in clients:
            while client.recv(4096):
                pass
        assert held(server) == 0


@pytest.mark.parametrize("path", ["/t/Echo", "/t/Talk"])
def test_a_message_counts_from_its_prefix_on(server, path):
    with Raw(server.port) as raw:
        raw.send(ask(1, to(path)), data(1, prefix(20 * MIB), 0))
        raw.ping()
        assert held(server) > 20 * MIB
        raw.send(ask(3, to(path)), data(3, prefix(20 * MIB), 0))
        fields = {}
        while b"grpc-status" not in fields:
            fields = raw.headers(3)
        assert int(fields[b"grpc-status"]) == EXHAUSTED
        assert b"--buffer-limit" in fields[b"grpc-message"]
        assert works(raw, 5)
        raw.send(rst_stream(1, ErrorCode.CANCEL))
        nothing_is_held(server, 1)
    nothing_is_held(server)


def test_one_connection_leaves_room_for_others(server):
    with Raw(server.port) as greedy, Raw(server.port) as modest:
        for stream_id in range(1, 41, 2):
            greedy.send(ask(stream_id), data(stream_id, prefix(4 * MIB), 0))
        greedy.ping()
        body = message(b"x" * MIB)
        modest.send(window_update(0, 2 * MIB))
        modest.send(frames.settings({frames.Http2Setting.INITIAL_WINDOW_SIZE: 2 * MIB}))
        modest.send(
            ask(1), *(data(1, body[at : at + 2**16], 0) for at in range(0, len(body), 2**16))
        )
        modest.send(data(1, b""))
        assert modest.status(1) == 0


def test_a_message_whose_end_never_comes_is_kept_on_the_account(server):
    """It is whole; only END_STREAM is missing."""
    with Raw(server.port) as raw:
        for stream_id in range(1, 41, 2):
            raw.send(ask(stream_id), data(stream_id, message(b"x" * 100_000), 0))
        raw.ping()
        assert held(server) >= 20 * 100_000


def test_queued_empty_messages_cost_what_they_take(server):
    with Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Sip")))
        raw.send(*(data(1, message(b"") * 20_000, 0) for _ in range(3)))
        raw.ping()
        assert held(server) > 59_000 * OVERHEAD_BYTES


def test_a_compressed_message_counts_as_it_is_opened(server):
    packed = zlib.compress(b"\0" * 40 * MIB)
    with Raw(server.port) as raw:
        headers = (*POST, (b"grpc-encoding", b"deflate"))
        raw.send(ask(1, headers), data(1, b"\1" + len(packed).to_bytes(4, "big") + packed))
        assert raw.status(1) == EXHAUSTED
        nothing_is_held(server, 1)


def test_answers_nobody_takes_count_and_what_does_not_fit_is_refused(server):
    """Window 0: every answer waits."""
    with Raw(server.port, initial_window_size=0) as raw:
        statuses = []
        for number in range(8):
            stream_id = 2 * number + 1
            body = message(b"x" * 6 * MIB)
            raw.send(ask(stream_id))
            for at in range(0, len(body), 2**17):
                raw.send(data(stream_id, body[at : at + 2**17], 0))
                raw.ping()
            raw.send(data(stream_id, b""))
            raw.ping()
            if held(server) < (number + 1) * 6 * MIB:
                statuses.append(number)
        assert statuses, "every answer was kept"
        assert held(server) <= BUDGET // 2 + CONNECTION_BYTES
        with Raw(server.port) as other:
            assert works(other, 1)
    nothing_is_held(server)


def test_streams_beyond_the_first_are_paid_for(server):
    with Raw(server.port) as raw:
        raw.send(*(ask(2 * number + 1, to("/t/Sleep")) for number in range(FREE_STREAMS * 8)))
        raw.ping()
        assert held(server) >= CONNECTION_BYTES + FREE_STREAMS * 7 * STREAM_BYTES - 2**16
        before = held(server)
        large = ask(2 * FREE_STREAMS * 8 + 1, (*to("/t/Sleep"), (b"k", b"x" * 14_000)))
        raw.send(large)
        raw.ping()
        assert held(server) > before + FREE_STREAMS * 8 * 5 * 10_000
        raw.send(*(rst_stream(2 * n + 1, ErrorCode.CANCEL) for n in range(FREE_STREAMS * 8 + 1)))
        nothing_is_held(server, 1)


def test_a_connection_the_budget_has_no_room_for_is_closed():
    with serving(limits=limits(3 * CONNECTION_BYTES)) as server:
        raws = [Raw(server.port) for _ in range(3)]
        for raw in raws:
            raw.ping()
        with pytest.raises((AssertionError, ConnectionError)), Raw(server.port) as late:
            late.ping()
        for raw in raws:
            raw.socket.close()
        nothing_is_held(server)


@pytest.mark.parametrize(
    "sent",
    {
        "nothing": b"",
        "half a prefix": data(1, b"\0\0", 0),
        "half a message": data(1, message(b"x" * 100)[:50], 0),
        "no end": data(1, message(b"x"), 0),
    }.items(),
    ids=lambda item: item[0],
)
@pytest.mark.parametrize("path", ["/t/Echo", "/t/Refuse"])
def test_a_request_that_does_not_come_ends_with_deadline_exceeded(sent, path):
    with serving(limits=limits(timeout_s=0.4)) as server, Raw(server.port) as raw:
        raw.send(ask(1, to(path)), sent[1])
        assert raw.status(1) == DEADLINE
        assert works(raw, 3)
        nothing_is_held(server, 1)


def test_a_stream_may_rest_between_messages_but_not_inside_one():
    with serving(limits=limits(timeout_s=0.3)) as server, Raw(server.port) as raw:
        raw.send(ask(1, to("/t/Talk")), data(1, message(b"one"), 0))
        raw.next(frames.DATA, 1)
        raw.send(ask(3, to("/t/Talk")), data(3, message(b"two")[:6], 0))
        assert raw.status(3) == DEADLINE
        raw.send(data(1, message(b"three")))
        assert raw.next(frames.DATA, 1)[1] == message(b"three")


@pytest.mark.parametrize("at_a_time", [0, 1])
def test_an_answer_that_is_not_taken_is_dropped(at_a_time):
    """Not even one byte at a time keeps it."""
    with (
        serving(limits=limits(timeout_s=0.5)) as server,
        Raw(server.port, initial_window_size=0) as raw,
    ):
        raw.send(ask(1), data(1, message(b"x" * 100_000)))
        stopped = threading.Event()

        def sip() -> None:
            while not stopped.wait(0.02):
                raw.send(window_update(1, at_a_time))

        sipping = threading.Thread(target=sip)
        if at_a_time:
            sipping.start()
        try:
            assert raw.reset(1) == ErrorCode.CANCEL
        finally:
            stopped.set()
            if at_a_time:
                sipping.join()
        nothing_is_held(server, 1)


def test_a_client_that_opens_no_window_for_the_connection_is_cut_off():
    with (
        serving(limits=limits(timeout_s=0.4)) as server,
        Raw(server.port, initial_window_size=MIB) as raw,
    ):
        raw.send(ask(1), data(1, message(b"x" * 100_000)))
        while not raw.closed:
            raw._read()
        nothing_is_held(server)


@pytest.mark.parametrize("seed", range(6))
def test_after_any_sequence_of_events_all_memory_is_given_back(server, seed):
    chance = random.Random(seed)
    raws = [Raw(server.port, initial_window_size=chance.choice([0, 10, 65_535])) for _ in range(3)]
    for raw in raws:
        stream_id = 1
        for _ in range(40):
            path = chance.choice(
                ["/t/Echo", "/t/Talk", "/t/Sip", "/t/Wait", "/t/Refuse", "/t/Pour"]
            )
            body = chance.choice(
                [
                    prefix(chance.randrange(4 * MIB)),
                    message(b"7" * chance.randrange(5)),
                    message(b"x" * 100_000),
                    message(b"") * 50,
                    b"\1" + message(zlib.compress(b"0" * 300_000))[1:],
                    b"\2\0\0\0\0",
                ]
            )
            headers = (*to(path), (b"grpc-encoding", b"deflate"), (b"grpc-timeout", b"1S"))
            flags = chance.choice([0, frames.END_STREAM])
            raw.send(ask(stream_id, headers), data(stream_id, body, flags))
            if chance.random() < 0.3:
                raw.send(rst_stream(stream_id, ErrorCode.CANCEL))
            if chance.random() < 0.3:
                raw.send(window_update(0, 1000))
            stream_id += 2
    for raw in raws:
        chance.choice([raw.ping, lambda: None])()
        raw.socket.close()
    nothing_is_held(server)


def test_sixteen_large_messages_at_once_and_one_larger_pass():
    with serving(limits=limits(1024 * MIB)) as server:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(server.url, options) as channel:
            echo = channel.unary_unary("/t/Echo")
            body = b"x" * 16 * MIB
            calls = [echo.future(body, timeout=120) for _ in range(16)]
            for call in calls:
                assert call.result() == body
            large = b"x" * 200 * MIB
            assert echo(large, timeout=120) == large
        nothing_is_held(server)


@pytest.mark.slow
def test_a_thousand_half_sent_messages_take_no_memory():
    """Each declares 2 GiB and sends what it may: the process grows by less than the budget."""
    with serving(limits=limits()) as server:
        before = resident_bytes()
        raws = [Raw(server.port) for _ in range(20)]
        for raw in raws:
            for number in range(50):
                stream_id = 2 * number + 1
                raw.send(ask(stream_id), data(stream_id, prefix(2**31 - 1), 0))
                raw.send(*(data(stream_id, b"x" * 2**16, 0) for _ in range(16)))
            raw.ping()
        assert held(server) <= BUDGET
        assert resident_bytes() - before < BUDGET + 64 * MIB
        for raw in raws:
            raw.socket.close()
        nothing_is_held(server)


def resident_bytes() -> int:
    with open("/proc/self/statm") as found:
        return int(found.read().split()[1]) * 4096
