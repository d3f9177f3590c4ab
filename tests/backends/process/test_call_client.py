"""A worker's end of its connection for calls, against a server that does not read."""

import asyncio
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from backends.process.call_client import Answer, CallClient
from backends.process.call_messages import (
    CallCancel,
    ControlAnswer,
    FamilyRequest,
    MetricsQuery,
    MetricValues,
    decode_from_worker,
)
from backends.process.messages import encode
from repository.process.channel import Channel

PATIENCE_S = 30.0
LARGE = MetricValues({f"family_{index}" + "x" * 10_000: () for index in range(100)})
"""More than the socket holds."""


@pytest.fixture
def ends() -> Iterator[tuple[CallClient, socket.socket]]:
    """A client, and the server's end."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE_S)
    with ours, theirs:
        yield CallClient(ours), theirs
        theirs.shutdown(socket.SHUT_RDWR)


def test_answers_are_read_while_the_server_takes_no_metrics(
    ends: tuple[CallClient, socket.socket],
) -> None:
    """The server stops reading while 64 answers wait for a worker: one that read none until its
    metrics had left would wait for ever, and so would the server."""
    client, server = ends[0], Channel(ends[1])
    client.read_metrics = lambda: LARGE
    came = threading.Semaphore(0)
    number = client.open(lambda _answer, _fd: came.release())
    for _ in range(3):
        server.send(encode(MetricsQuery()))
    for _ in range(200):
        server.send(encode(ControlAnswer(number, "x" * 10_000, ready=True)))
    for _ in range(200):
        assert came.acquire(timeout=PATIENCE_S)
    assert decode_from_worker(server.receive(PATIENCE_S).payload) == LARGE


def test_what_destructors_post_arrives_without_another_question(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    number = client.open(lambda _answer, _fd: None)
    client.send(FamilyRequest(number, "a", "b", "gauge"))
    client.post(CallCancel(number))
    received = {type(decode_from_worker(server.receive(PATIENCE_S).payload)) for _ in range(2)}
    assert received == {FamilyRequest, CallCancel}


def answer(client: CallClient, wanted: list[int]) -> "SimpleQueue[int]":
    """Ask and wait as `exec` does, on a thread; `wanted` gets the question's number."""
    ended: SimpleQueue[int] = SimpleQueue()

    def ask() -> None:
        answers: SimpleQueue[int] = SimpleQueue()
        number = client.open(
            lambda came, _fd: answers.put(-1 if came is None else came.number), will_wait=True
        )
        wanted.append(number)
        client.send(FamilyRequest(number, "a", "b", "gauge"))
        ended.put(client.wait(number, answers))
        client.close(number)

    threading.Thread(target=ask, daemon=True).start()
    return ended


def asked(server: Channel) -> int:
    """The number of the next question."""
    message = decode_from_worker(server.receive(PATIENCE_S).payload)
    assert isinstance(message, FamilyRequest)
    return message.number


def reply(server: Channel, *numbers: int) -> None:
    for number in numbers:
        server.send(encode(ControlAnswer(number, "", ready=True)))


def test_a_thread_that_waits_for_its_answer_keeps_no_other_from_getting_its_own(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    first = answer(client, [])
    slow = asked(server)
    second = answer(client, [])
    quick = asked(server)
    beside: SimpleQueue[int] = SimpleQueue()
    number = client.open(lambda came, _fd: beside.put(-1 if came is None else came.number))
    reply(server, quick, number)
    assert second.get(timeout=PATIENCE_S) == quick
    assert beside.get(timeout=PATIENCE_S) == number
    client.close(number)
    third = answer(client, [])
    other = asked(server)
    reply(server, slow, other)
    assert first.get(timeout=PATIENCE_S) == slow
    assert third.get(timeout=PATIENCE_S) == other


def test_tasks_of_a_loop_read_their_answers_beside_a_thread_that_waits_for_its_own(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    readers: set[int] = set()

    async def ask() -> int:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        def deliver(came: Answer | None, _fd: int) -> None:
            readers.add(threading.get_ident())
            loop.call_soon_threadsafe(future.set_result, -1 if came is None else came.number)

        number = client.open(deliver, loop=loop)
        client.send(FamilyRequest(number, "a", "b", "gauge"))
        try:
            return await asyncio.wait_for(future, PATIENCE_S)
        finally:
            client.close(number)

    async def ask_all() -> list[int]:
        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        numbers = [await asyncio.to_thread(asked, server) for _ in tasks]
        beside = answer(client, [])
        numbers.append(await asyncio.to_thread(asked, server))
        reply(server, *reversed(numbers))
        own = await asyncio.to_thread(beside.get, timeout=PATIENCE_S)
        return [*await asyncio.gather(*tasks), own, *numbers]

    found = asyncio.run(ask_all())
    assert found[:4] == found[4:]

    async def ask_alone() -> int:
        task = asyncio.create_task(ask())
        reply(server, await asyncio.to_thread(asked, server))
        return await task

    readers.clear()
    assert asyncio.run(ask_alone()) > 0
    assert readers == {threading.get_ident()}


def test_answers_of_many_threads_in_any_order_reach_who_asked(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    order = random.Random(0)
    for _ in range(30):
        asking: list[tuple[list[int], SimpleQueue[int]]] = []
        for _ in range(order.randint(1, 5)):
            number: list[int] = []
            asking.append((number, answer(client, number)))
        numbers = [asked(server) for _ in asking]
        order.shuffle(numbers)
        if order.random() < 0.5:
            server.send(encode(MetricsQuery()))
        reply(server, *numbers)
        for number, ended in asking:
            assert ended.get(timeout=PATIENCE_S) == number[0]
        client.post(CallCancel(0))
        while not isinstance(decode_from_worker(server.receive(PATIENCE_S).payload), CallCancel):
            continue


def test_metrics_are_sent_after_a_thread_has_read_its_own_answer(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    ended = answer(client, [])
    reply(server, asked(server))
    ended.get(timeout=PATIENCE_S)
    server.send(encode(MetricsQuery()))
    assert decode_from_worker(server.receive(PATIENCE_S).payload) == MetricValues({})


def test_a_server_that_goes_ends_the_wait_of_every_thread(
    ends: tuple[CallClient, socket.socket],
) -> None:
    client, server = ends[0], Channel(ends[1])
    waiting = [answer(client, []) for _ in range(3)]
    for _ in waiting:
        asked(server)
    server.shutdown()
    assert [ended.get(timeout=PATIENCE_S) for ended in waiting] == [-1, -1, -1]


WORKER = """
import os, resource, socket, sys
from queue import SimpleQueue
from backends.process.call_client import CallClient

client = CallClient(socket.socket(fileno=int(sys.argv[1])))
answers = SimpleQueue()
wait = sys.argv[2] == "wait"
number = client.open(lambda came, fd: answers.put(came), will_wait=wait)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
os.write(1, b"open")
client.wait(number, answers) if wait else answers.get()
"""


@pytest.mark.parametrize("how", ["wait", "leave"])
def test_a_worker_that_has_no_room_for_a_descriptor_ends_and_says_so(how: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(theirs.fileno()), how],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.read(4) == b"open"
                Channel(ours).send(encode(ControlAnswer(1, "", ready=True)), fd=ours.fileno())
                _, errors = worker.communicate(timeout=PATIENCE_S)
            finally:
                worker.kill()
    assert worker.returncode == 1
    assert b"the worker ends, because it cannot read the answer to a call of its model" in errors
    assert b"a message without the descriptor it announces" in errors
