"""Clients that go while they upload, wait, are computed for or are streamed to leave nothing."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from server.http2.wire import frames
from support.doors import House, house
from support.http import infer_body
from support.http2 import Raw, ask, data, message, to
from support.server import identity_config

CLIENTS = [300, pytest.param(1000, marks=pytest.mark.slow)]
AT_ONCE = 100
DELAY_MS = 10
NUMBERS = 500
SLOW = identity_config("slow", DELAY_MS)
STREAMED = identity_config(
    "streamed",
    DELAY_MS,
    'parameters { key: "responses" value { string_value: "50" } }\n'
    "model_transaction_policy { decoupled: true }\n",
)
INFER_PATH = "/v2/models/slow/infer"
STREAM_PATH = "/v2/models/streamed/generate_stream"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"

Client = Callable[[random.Random], Awaitable[None]]
Stay = Callable[[asyncio.StreamReader], Awaitable[object]]


@pytest.fixture
def opened() -> Iterator[House]:
    with house(SLOW, STREAMED) as one:
        yield one


async def crowd(clients: int, *kinds: Client) -> None:
    """So many clients, each of one of these kinds, AT_ONCE at a time."""
    dice = random.Random(20261121)
    for _ in range(clients // AT_ONCE):
        await asyncio.gather(*(dice.choice(kinds)(dice) for _ in range(AT_ONCE)))


async def within(seconds: float, work: Awaitable[object]) -> None:
    """Wait for the work, but not longer; it goes on."""
    await asyncio.wait([asyncio.ensure_future(work)], timeout=seconds)


def leaves_nothing(house: House, tasks_before: list[str], clients: int) -> None:
    """Clients were cancelled in both models, and nothing is left of any."""
    house.wait_for(lambda: house.inside() == 0, "the schedulers to be empty")
    house.wait_for(lambda: len(house.tasks()) <= len(tasks_before), "the tasks to end")
    for model in ("slow", "streamed"):
        assert house.cancelled(model) > clients // 20


class HttpClients:
    """Each sends a request, or the beginning of one, and hangs up."""

    def __init__(self, house: House) -> None:
        self._port = house.http_port

    async def upload(self, dice: random.Random) -> None:
        body = infer_body(NUMBERS)
        sent = dice.randrange(len(body))
        await self._go(dice.choice([INFER_PATH, STREAM_PATH]), body, at_once, sent)

    async def infer(self, dice: random.Random) -> None:
        seconds = dice.random() / 10
        body = infer_body(NUMBERS)
        await self._go(INFER_PATH, body, lambda reader: within(seconds, reader.read(1)))

    async def be_streamed_to(self, dice: random.Random) -> None:
        """Hangs up at any event, or before the first."""
        events = dice.randrange(4)

        async def listen(reader: asyncio.StreamReader) -> None:
            for _ in range(events):
                await reader.readuntil(b"data: ")

        await self._go(STREAM_PATH, b'{"INPUT0": [1.5, 2.5]}', listen)

    async def _go(self, path: str, body: bytes, stay: Stay, sent: int | None = None) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write((head(path, body) + body)[:sent])
        await writer.drain()
        await stay(reader)
        writer.transport.abort()


def head(path: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )


async def at_once(reader: asyncio.StreamReader) -> None:
    """Stay no longer."""


async def status_line(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(INFER_PATH, infer_body()) + infer_body())
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return line


@pytest.mark.parametrize("clients", CLIENTS)
def test_http_clients_that_hang_up_at_any_moment_leave_nothing(opened: House, clients: int) -> None:
    before, kinds = opened.tasks(), HttpClients(opened)
    work = crowd(clients, kinds.upload, kinds.infer, kinds.be_streamed_to)
    asyncio.run(asyncio.wait_for(work, 60))
    leaves_nothing(opened, before, clients)
    assert asyncio.run(status_line(opened.http_port)) == b"HTTP/1.1 200 OK\r\n"


class GrpcClients:
    """Each begins a call and cancels it; uploads are cut off on connections of their own."""

    def __init__(self, channel: grpc.aio.Channel, lines: list[Raw]) -> None:
        self._channel = channel
        self._lines = lines
        self._stream_ids = count(1, 2)

    async def upload(self, dice: random.Random) -> None:
        line, stream_id = dice.choice(self._lines), next(self._stream_ids)
        whole = message(request("slow"))
        part = data(stream_id, whole[: dice.randrange(len(whole))], flags=0)
        reset = frames.frame(frames.RST_STREAM, 0, stream_id, (8).to_bytes(4, "big"))
        line.send(ask(stream_id, to(dice.choice([INFER, STREAM]))), part, reset)

    async def infer(self, dice: random.Random) -> None:
        call = self._channel.unary_unary(INFER)(request("slow"))
        await within(dice.random() / 10, call)
        call.cancel()

    async def be_streamed_to(self, dice: random.Random) -> None:
        """Cancels at any response, or before the first."""
        call = self._channel.stream_stream(STREAM)()
        await call.write(request("streamed"))
        for _ in range(dice.randrange(4)):
            await call.read()
        call.cancel()


def request(model: str) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, NUMBERS]}
    raw = [bytes(4 * NUMBERS)]
    whole = pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=raw)
    return whole.SerializeToString()


@pytest.fixture
def lines(opened: House) -> Iterator[list[Raw]]:
    made = [Raw(opened.grpc_port) for _ in range(5)]
    yield made
    for one in made:
        one.socket.close()


@pytest.mark.parametrize("clients", CLIENTS)
def test_grpc_calls_cancelled_at_any_moment_leave_nothing(
    opened: House, lines: list[Raw], clients: int
) -> None:
    async def cancel() -> None:
        async with grpc.aio.insecure_channel(opened.grpc) as channel:
            kinds = GrpcClients(channel, lines)
            await crowd(clients, kinds.upload, kinds.infer, kinds.be_streamed_to)

    before = opened.tasks()
    asyncio.run(asyncio.wait_for(cancel(), 300))
    for line in lines:
        line.ping()  # what was sent on it has been taken
    leaves_nothing(opened, before, clients)
    with grpc.insecure_channel(opened.grpc) as channel:
        assert channel.unary_unary(INFER)(request("slow"), timeout=60)
