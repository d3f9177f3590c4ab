"""Stock gRPC clients, over both event loops."""

import ast
import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from server.http2 import session
from server.http2.calls import grpc_call
from server.http2.calls.messages import INFLATED_BYTES
from server.http2.limits import unbounded
from support.http2 import LOOPS, Served, serving

UNBOUND = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@pytest.fixture(scope="module", params=LOOPS)
def server(request):
    with serving(request.param) as opened:
        yield opened


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.url, options=UNBOUND) as opened:
        yield opened


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code().name, refused.value.details()


def test_messages_come_back(channel):
    echo = channel.unary_unary("/t/Echo")
    for message in (b"", b"x", os.urandom(20_000)):
        assert echo(message, timeout=60) == message


def test_a_hundred_megabytes_go_both_ways(channel):
    message = os.urandom(100 * 2**20)
    assert channel.unary_unary("/t/Echo")(message, timeout=60) == message


def test_streams_carry_small_and_large_messages_in_order(channel):
    talk = channel.stream_stream("/t/Talk")
    small = [b"%d" % number for number in range(2000)]
    assert list(talk(iter(small), timeout=60)) == small
    large = [os.urandom(3 * 2**20) for _ in range(6)]
    assert list(talk(iter(large), timeout=60)) == large
    assert list(talk(iter(()), timeout=60)) == []


def test_a_conversation_answers_before_the_client_has_finished(channel):
    said = threading.Semaphore(1)

    def words():
        for word in (b"one", b"two", b"three"):
            assert said.acquire(timeout=60)
            yield word

    heard = []
    for word in channel.stream_stream("/t/Talk")(words(), timeout=60):
        heard.append(word)
        said.release()
    assert heard == [b"one", b"two", b"three"]


def test_a_thousand_calls_at_once_on_one_channel(server, channel):
    wait = channel.unary_unary("/t/Wait")
    calls = [wait.future(b"x", timeout=60) for _ in range(1200)]  # 200 wait in the client
    server.wait_for(lambda: len(server.waiting) == 1000, "a thousand calls inside")
    server.answer_waiting()
    server.wait_for(lambda: len(server.waiting) == 200, "the others")
    server.answer_waiting()
    assert {call.result() for call in calls} == {b"waited"}


def test_a_client_that_gives_back_each_message_by_itself_is_no_flood(server, monkeypatch):
    monkeypatch.setattr(session, "IDLE_FRAMES", (100, 0))
    small = [b"%d" % number for number in range(1000)]
    with grpc.insecure_channel(server.url) as channel:
        echo, talk = channel.unary_unary("/t/Echo"), channel.stream_stream("/t/Talk")
        assert [echo(one, timeout=60) for one in small] == small
        assert list(talk(iter(small), timeout=60)) == small


def test_the_asyncio_client_is_served_too(server):
    async def main() -> list[bytes]:
        async with grpc.aio.insecure_channel(server.url) as channel:
            echo, talk = channel.unary_unary("/t/Echo"), channel.stream_stream("/t/Talk")
            answers = await asyncio.gather(*(echo(b"%d" % number) for number in range(200)))
            call = talk()
            await call.write(b"last")
            answers.append(await call.read())
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            return answers

    assert asyncio.run(main()) == [*(b"%d" % number for number in range(200)), b"last"]


@pytest.mark.parametrize("kind", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_understood(channel, kind):
    echo, talk = channel.unary_unary("/t/Echo"), channel.stream_stream("/t/Talk")
    message = b"again and " * 100_000
    assert echo(message, compression=kind, timeout=60) == message
    assert list(talk(iter([message] * 3), compression=kind, timeout=60)) == [message] * 3


@pytest.mark.parametrize("path", ["/t/Echo", "/t/Talk"])
def test_a_message_that_opens_to_too_much_is_refused_and_the_next_is_served(channel, path):
    call = channel.stream_stream(path)
    bomb = bytes(INFLATED_BYTES + 1)
    code, text = refusal(
        lambda: list(call(iter([bomb]), compression=grpc.Compression.Gzip, timeout=60))
    )
    assert code == "RESOURCE_EXHAUSTED"
    assert text.endswith("decompressed); send it without compression")
    assert list(call(iter([b"x"]), compression=grpc.Compression.Gzip, timeout=60)) == [b"x"]


@contextmanager
def busy_threads() -> Iterator[None]:
    """Inside, nothing is opened off the loop."""
    over = threading.Event()
    held = [grpc_call._pool.submit(over.wait, 60) for _ in range(grpc_call._pool._max_workers)]
    try:
        yield
    finally:
        over.set()
        assert all(one.result() for one in held)


def test_others_are_served_while_a_message_is_opened(channel):
    echo, message = channel.unary_unary("/t/Echo"), b"again and " * 100_000
    with busy_threads():
        call = echo.future(message, compression=grpc.Compression.Gzip, timeout=60)
        assert echo(b"x", timeout=60) == b"x"
        assert not call.done()
    assert call.result() == message


def test_a_message_that_nobody_waits_for_any_more_is_not_answered(server, channel):
    wait, message = channel.unary_unary("/t/Wait"), b"again and " * 100_000
    with busy_threads():
        late = refusal(lambda: wait(message, compression=grpc.Compression.Gzip, timeout=0.2))
        assert late[0] == "DEADLINE_EXCEEDED"
    assert (
        channel.unary_unary("/t/Echo")(message, compression=grpc.Compression.Gzip, timeout=60)
        == message
    )
    assert server.waiting == []


def test_metadata_and_deadline_reach_the_method(channel):
    sent = [("k", "v" * 7000), ("k", "w"), ("b-bin", bytes(range(256)))]
    said = ast.literal_eval(
        channel.unary_unary("/t/Metadata")(b"", metadata=sent, timeout=600).decode()
    )
    *metadata, remaining = said
    assert [pair for pair in metadata if pair[0] in ("k", "b-bin")] == sent
    assert 300 < remaining < 601  # clients round up


def test_too_much_metadata_is_refused_and_the_connection_goes_on(channel):
    echo = channel.unary_unary("/t/Echo")
    code, text = refusal(lambda: echo(b"x", metadata=[("k", "v" * 20_000)], timeout=60))
    assert (code, text) == ("RESOURCE_EXHAUSTED", "received metadata larger than max (16384)")
    assert echo(b"x", metadata=[("other", "y")], timeout=60) == b"x"


def test_an_unknown_method_is_named(channel):
    assert refusal(lambda: channel.unary_unary("/t/Nowhere")(b"x", timeout=60)) == (
        "UNIMPLEMENTED",
        "Method not found! (/t/Nowhere)",
    )


@pytest.mark.parametrize("text", ["50 % of é\nlines", "", "x" * 4096])
def test_texts_of_errors_arrive_as_they_are(channel, text):
    refuse = channel.unary_unary("/t/Refuse")
    assert refusal(lambda: refuse(text.encode(), timeout=60)) == ("NOT_FOUND", text)


def test_endless_texts_are_cut(channel):
    refuse = channel.unary_unary("/t/Refuse")
    _, text = refusal(lambda: refuse("é".encode() * 10_000, timeout=60))
    assert text == "é" * 1024 + "..."


def test_a_bug_in_a_method_is_internal_and_says_so(channel, caplog):
    assert refusal(lambda: channel.unary_unary("/t/Broken")(b"x", timeout=60)) == (
        "INTERNAL",
        "ValueError: of its own making. This is a bug.",
    )
    assert "of its own making" in caplog.text


@pytest.mark.parametrize("path", ["/t/Wait", "/t/Sleep"])
def test_a_late_call_is_cancelled_and_told(server, channel, path):
    before = server.cancelled
    assert refusal(lambda: channel.unary_unary(path)(b"x", timeout=0.05))[0] == "DEADLINE_EXCEEDED"
    server.wait_for(lambda: server.cancelled == before + 1, "the call to be cancelled")
    server.on_loop(server.waiting.clear)


@pytest.mark.parametrize("path", ["/t/Wait", "/t/Sleep"])
def test_a_call_that_is_cancelled_is_cancelled_here_too(server, channel, path):
    before = server.cancelled
    stream = channel.unary_stream(path)(b"x")
    server.on_loop(lambda: None)
    wait_inside(server, path)
    stream.cancel()
    server.wait_for(lambda: server.cancelled == before + 1, "the call to be cancelled")
    server.on_loop(server.waiting.clear)
    assert channel.unary_unary("/t/Echo")(b"x", timeout=60) == b"x"


def test_a_client_that_goes_cancels_its_calls(server):
    before = server.cancelled
    with grpc.insecure_channel(server.url) as channel:
        calls = [channel.unary_unary(path).future(b"x") for path in ("/t/Wait", "/t/Sleep")]
        wait_inside(server, "/t/Wait")
        wait_inside(server, "/t/Sleep")
    server.wait_for(lambda: server.cancelled == before + 2, "both to be cancelled")
    assert all(call.done() for call in calls)
    server.on_loop(server.waiting.clear)


def wait_inside(server: Served, path: str) -> None:
    """Until the call of `path` is being answered."""
    if path == "/t/Wait":
        server.wait_for(lambda: bool(server.waiting), "the call to be inside")
    else:
        tasks = server.listener._service._tasks
        server.wait_for(lambda: bool(tasks), "the conversation to have begun")
        server.on_loop(lambda: asyncio.sleep(0))


def test_messages_over_the_limit_are_refused_both_ways():
    with serving(limits=unbounded(1000)) as server, grpc.insecure_channel(server.url) as channel:
        echo, talk = channel.unary_unary("/t/Echo"), channel.stream_stream("/t/Talk")
        too_large = ("RESOURCE_EXHAUSTED", "Received message larger than max (1001 vs. 1000)")
        assert refusal(lambda: echo(b"x" * 1001, timeout=60)) == too_large
        assert refusal(lambda: list(talk(iter([b"x" * 1001]), timeout=60))) == too_large
        pour = channel.unary_stream("/t/Pour")
        assert refusal(lambda: list(pour(b"1001", timeout=60))) == (
            "RESOURCE_EXHAUSTED",
            "Sent message larger than max (1001 vs. 1000)",
        )
        assert echo(b"x" * 1000, timeout=60) == b"x" * 1000
