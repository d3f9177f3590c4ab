"""A worker's end of its connection for calls, against a server that does not read."""

import socket
import threading
from collections.abc import Iterator

import pytest

from backends.process.call_client import CallClient
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
