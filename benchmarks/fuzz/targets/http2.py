"""The gRPC listener's HTTP/2: frames as bytes on a connection of a whole gateway."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tritonclient.grpc import service_pb2 as pb

from benchmarks.fuzz.frames2 import (
    METHODS,
    WINDOWS,
    call,
    check_frames,
    head_block,
    join,
    message,
    split,
)
from benchmarks.fuzz.servers import gateway, tell
from benchmarks.fuzz.target import Run, Target, Wrong
from server.http2.wire import frames
from server.http2.wire.frames import Http2Setting, frame

CHECK_EVERY = 500
INFER, LIVE, STREAM = METHODS[0], METHODS[1], METHODS[2]


@contextmanager
def opened() -> Iterator[Run]:
    with gateway() as (server, _, rpc):
        count = 0

        def run(data: bytes) -> None:
            nonlocal count
            check_frames(server.run(tell(rpc, data)))
            count += 1
            if count % CHECK_EVERY == 0:
                answer = server.run(tell(rpc, frames.PREFACE + WINDOWS + call(1, LIVE, b""), 0.2))
                if b"\x00\x00\x00\x00\x02\x08\x01" not in answer:  # ServerLiveResponse(live=True)
                    raise Wrong(f"a valid call is answered {answer[:200]!r}")

        yield run


def infer() -> bytes:
    asked = pb.ModelInferRequest(model_name="echo", id="1", raw_input_contents=[bytes(8)])
    asked.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 2])
    packed: bytes = asked.SerializeToString()
    return packed


def seeds() -> Sequence[bytes]:
    begin = frames.PREFACE + WINDOWS
    big = {
        Http2Setting.INITIAL_WINDOW_SIZE: 0,
        Http2Setting.HEADER_TABLE_SIZE: 0,
        Http2Setting.MAX_FRAME_SIZE: 16384,
    }
    block = head_block(INFER)
    cut = (
        frame(frames.HEADERS, 0, 1, block[:5])
        + frame(frames.CONTINUATION, 0, 1, block[5:9])
        + frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:])
        + frame(
            frames.DATA, frames.END_STREAM | frames.PADDED, 1, b"\x03" + message(infer()) + bytes(3)
        )
    )
    talk = frame(frames.HEADERS, frames.END_HEADERS, 3, head_block(STREAM))
    for _ in range(3):
        talk += frame(frames.DATA, 0, 3, message(infer()))
    talk += frame(frames.DATA, frames.END_STREAM, 3)
    return (
        begin + call(1, INFER, infer()),
        begin + call(1, LIVE, b"") + call(3, LIVE, b""),
        frames.PREFACE + frames.settings(big) + call(1, INFER, infer())
        + frames.window_update(1, 100) + frames.window_update(0, 9),
        begin + cut,
        begin + talk + frame(frames.RST_STREAM, 0, 3, b"\0\0\0\x08"),
        begin + frame(frames.PING, 0, 0, bytes(8)) + frame(frames.PRIORITY, 0, 5, bytes(5))
        + frame(frames.GOAWAY, 0, 0, bytes(8)) + frame(frames.SETTINGS, frames.ACK, 0),
        begin + frame(frames.HEADERS, 0x25, 7, bytes(5) + head_block(LIVE)),
        begin + frame(0x63, 1, 9, b"unknown") + frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2x"),
    )  # fmt: skip


TARGET = Target("http2", ("server.http2",), opened, seeds, split=split, join=join)
