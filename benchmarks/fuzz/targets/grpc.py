"""Every gRPC method of the server: messages as protobuf, on connections that are well-formed.

An input is a byte that chooses the method, then messages, each behind two bytes of length.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tritonclient.grpc import service_pb2 as pb

from benchmarks.fuzz.frames2 import METHODS, WINDOWS, check_frames, head_block, message
from benchmarks.fuzz.servers import gateway, tell
from benchmarks.fuzz.target import Run, Target
from benchmarks.fuzz.targets.http2 import infer
from server.http2.wire import frames
from server.http2.wire.frames import frame

_MOST = 0xFFFF


@contextmanager
def opened() -> Iterator[Run]:
    with gateway(allow_client_shm=True, model_control_mode="explicit", load_model=("*",)) as (
        server,
        _,
        rpc,
    ):

        def run(data: bytes) -> None:
            if data:
                check_frames(server.run(tell(rpc, connection(data))))

        yield run


def connection(data: bytes) -> bytes:
    """The bytes of a connection with one call, whose messages are those of the input."""
    path = METHODS[data[0] % len(METHODS)]
    sent = frames.PREFACE + WINDOWS
    sent += frame(frames.HEADERS, frames.END_HEADERS, 1, head_block(path))
    for payload in messages(data[1:]):
        sent += frame(frames.DATA, 0, 1, message(payload))
    return sent + frame(frames.DATA, frames.END_STREAM, 1)


def messages(data: bytes) -> list[bytes]:
    """What stands behind the lengths; the last may be cut."""
    found, at = [], 0
    while at + 2 <= len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        found.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return found or [b""]


def split(data: bytes) -> list[bytes]:
    if not data:
        raise ValueError("no method")
    return [data[:1], *messages(data[1:])]


def join(records: list[bytes]) -> bytes:
    first, *rest = records or [b"\0"]
    cut = [one[:_MOST] for one in rest]
    return first[:1] + b"".join(len(one).to_bytes(2, "big") + one for one in cut)


def _typed() -> pb.ModelInferRequest:
    asked = pb.ModelInferRequest(model_name="text", model_version="1", id="t")
    one = asked.inputs.add(name="IN", datatype="BYTES", shape=[2])
    one.contents.bytes_contents.extend([b"a", b"bc"])
    one.parameters["shared_memory_region"].string_param = "r"
    asked.outputs.add(name="OUT").parameters["classification"].int64_param = 2
    asked.parameters["priority"].uint64_param = 1
    asked.parameters["sequence_id"].string_param = "s"
    asked.parameters["sequence_start"].bool_param = True
    return asked


def seeds() -> Sequence[bytes]:
    def one(method: bytes, *sent: bytes) -> bytes:
        index = next(at for at, path in enumerate(METHODS) if path.endswith(b"/" + method))
        return join([bytes([index]), *sent])

    load = pb.RepositoryModelLoadRequest(model_name="echo")
    load.parameters["config"].string_param = '{"max_batch_size": 2}'
    load.parameters["file:1/model.txt"].bytes_param = b"x"
    trace = pb.TraceSettingRequest(model_name="echo")
    trace.settings["trace_level"].value.extend(["OFF"])
    logs = pb.LogSettingsRequest()
    logs.settings["log_verbose_level"].uint32_param = 1
    shm = pb.SystemSharedMemoryRegisterRequest(name="r", key="/none", offset=1, byte_size=8)
    return (
        one(b"ModelInfer", infer()),
        one(b"ModelInfer", _typed().SerializeToString()),
        one(b"ModelStreamInfer", infer(), infer(), _typed().SerializeToString()),
        one(b"ModelReady", pb.ModelReadyRequest(name="echo", version="1").SerializeToString()),
        one(b"ModelMetadata", pb.ModelMetadataRequest(name="echo").SerializeToString()),
        one(b"ModelConfig", pb.ModelConfigRequest(name="echo").SerializeToString()),
        one(b"ModelStatistics", pb.ModelStatisticsRequest(name="").SerializeToString()),
        one(b"RepositoryIndex", pb.RepositoryIndexRequest(ready=True).SerializeToString()),
        one(b"RepositoryModelLoad", load.SerializeToString()),
        one(b"SystemSharedMemoryRegister", shm.SerializeToString()),
        one(b"TraceSetting", trace.SerializeToString()),
        one(b"LogSettings", logs.SerializeToString()),
        one(b"ServerLive", b""),
    )


TARGET = Target(
    "grpc",
    ("server.grpc", "server.codec.grpc_infer", "server.http2", "server.admit", "server.dataplane"),
    opened,
    seeds,
    split=split,
    join=join,
)
