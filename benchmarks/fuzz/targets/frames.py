"""What our own processes say to each other: every reader of frames, given anything.

An input is a byte that chooses the reader, then its bytes. A worker that runs others' code, or a
damaged file, must end in the exceptions that the readers promise.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence

import msgpack

from backends.process import messages
from benchmarks.fuzz.target import Target, plain
from control import desired
from control.gateways import wire
from control.gateways.messages import (
    ArmReport,
    ArmReports,
    LoadReport,
    LoadRow,
    Message,
    Unknown,
)
from control.gateways.wire import BadFrame, pack_frame, read_frame
from control.rollouts.arms import ArmTotals
from control.rollouts.assignment_counts import AssignmentCount
from repository.git.errors import BadBody
from repository.git.hooks import hook
from repository.process.channel import Channel
from schedulers.llm import engine_messages as engine
from schedulers.llm.generation import GenerateRequest, GenerationOutput

_BAD: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError)


def _worker(data: bytes) -> None:
    messages.encode(messages.decode(data))


def _engine(data: bytes) -> None:
    messages.encode(engine.decode(data))


def _link(data: bytes) -> None:
    async def read() -> Message | Unknown | None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await read_frame(reader)

    asyncio.run(read())


def _channel(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        Channel(ours).receive(timeout=5.0)


READERS: tuple[tuple[Callable[[bytes], object], tuple[type[Exception], ...]], ...] = (
    (_worker, _BAD),
    (_engine, _BAD),
    (_link, (BadFrame, ConnectionError)),
    (_channel, (EOFError, ValueError)),
    (wire.decode_state, (ValueError,)),
    (hook.decode, (BadBody,)),
)
"""Each reader, and what it promises to raise for what is no frame."""


def run(data: bytes) -> None:
    if not data:
        return
    reader, promised = READERS[data[0] % len(READERS)]
    try:
        reader(data[1:])
    except promised:
        return


def seeds() -> Sequence[bytes]:
    trouble = messages.WorkerError("ModelError", "text", "INTERNAL")
    facts = messages.RequestMetadata("id", 7, "{}", ("OUT",), 5)
    worker = (
        messages.Load("m", 1, "/f", "/p", b"", "d", "cpu", 0, 1),
        messages.WorkerLoaded(b"", "cpu", 1, False),
        messages.Execute((1,), True, (facts,), (), ()),
        messages.BatchExecuted({0: trouble}, (), 1, 2, 3, {0: "{}"}, False),
        messages.BatchFailed(trouble, False),
        messages.StreamPart(1, True, False, trouble, (), b"x", ""),
    )
    request = GenerateRequest("id", (1,), 5, seed=7, principal="p", stop=("x",))
    loop = (
        engine.Submit((request,)),
        engine.Cancel(("a",)),
        engine.Embed("e", (b"\1\0\0\0",)),
        engine.StepReport(
            1, ("a",), [GenerationOutput("a", 5, "x")], engine.EngineStats(*range(11))
        ),
        engine.Encode(1, ("text",), True),
    )
    state = desired.DesiredState(
        3,
        "s",
        (desired.DesiredModel("m", "d", pins=(desired.Pin(1, "", "alias a"),)),),
        {"m": {"a": 1}},
    )
    arm = ArmReport("r", "o", "a", "m", 1, False, 0, 0, 0, ArmTotals())
    windows = ArmReports("server", "b", (arm,), {"o": (AssignmentCount("s", 1, 2, 3),)})
    loads = LoadReport("server", 1, True, (LoadRow("m", 1, "READY", ""),), frozenset())
    told = (
        b'{"hook":"pre-receive","key":"k","updates":[["' + b"0" * 40 + b'","' + b"1" * 40
        + b'","refs/heads/main"]],"quarantine":{"A":"b"},"options":["o"]}'
    )  # fmt: skip
    return (
        *(b"\0" + messages.encode(one) for one in worker),
        *(b"\1" + messages.encode(one) for one in loop),
        *(b"\2" + pack_frame(one) for one in (windows, loads)),
        b"\3" + len(b"abc").to_bytes(4, "little") + b"abc",
        b"\4" + wire.encode_state(state),
        b"\4" + msgpack.packb({"format": 1, "models": [], "grants": []}),
        b"\5" + told,
    )


TARGET = Target(
    "frames",
    ("backends.process.messages", "repository.process.channel", "schedulers.llm.engine_messages",
     "server.desired.link", "control.gateways.arm_reports", "control.gateways.wire",
     "repository.git.hooks.hook"),
    lambda: plain(run),
    seeds,
)  # fmt: skip
