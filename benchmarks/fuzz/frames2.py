"""HTTP/2 for the fuzzer: valid calls, the frames of a connection, and what an answer may be."""

from benchmarks.fuzz.target import Wrong
from server.http2.wire import frames
from server.http2.wire.frames import HEAD_BYTES, Http2Setting, frame
from server.http2.wire.hpack import Headers, literal

_SERVICE = b"/inference.GRPCInferenceService/"
METHODS = tuple(
    _SERVICE + name
    for name in (
        b"ModelInfer", b"ServerLive", b"ModelStreamInfer", b"ServerReady", b"ModelReady",
        b"ServerMetadata", b"ModelMetadata", b"ModelConfig", b"ModelStatistics",
        b"RepositoryIndex", b"RepositoryModelLoad", b"RepositoryModelUnload",
        b"SystemSharedMemoryStatus", b"SystemSharedMemoryRegister",
        b"SystemSharedMemoryUnregister", b"CudaSharedMemoryStatus", b"CudaSharedMemoryRegister",
        b"CudaSharedMemoryUnregister", b"TraceSetting", b"LogSettings",
    )
)  # fmt: skip
WINDOWS = frames.settings({Http2Setting.INITIAL_WINDOW_SIZE: 1 << 20})
_LARGEST_BYTES = (1 << 24) - 1


def head_block(path: bytes) -> bytes:
    head: Headers = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return literal(head)


def message(payload: bytes) -> bytes:
    """With gRPC's prefix: not compressed, and its length."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def call(stream: int, path: bytes, payload: bytes) -> bytes:
    """A unary call, whole."""
    head = frame(frames.HEADERS, frames.END_HEADERS, stream, head_block(path))
    return head + frame(frames.DATA, frames.END_STREAM, stream, message(payload))


def split(data: bytes) -> list[bytes]:
    """The preface and the frames; what is left over is one record."""
    if not data.startswith(frames.PREFACE):
        raise ValueError("no preface")
    found, at = [frames.PREFACE], len(frames.PREFACE)
    while at + HEAD_BYTES <= len(data):
        end = at + HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
        found.append(data[at:end])
        at = end
    return [*found, data[at:]] if at < len(data) else found


def join(records: list[bytes]) -> bytes:
    """The records with the lengths of frames set right, but of those too short to have one."""
    first, *rest = records or [b""]
    return first + b"".join(map(_with_length, rest))


def _with_length(record: bytes) -> bytes:
    if len(record) < HEAD_BYTES:
        return record
    return min(len(record) - HEAD_BYTES, _LARGEST_BYTES).to_bytes(3, "big") + record[3:]


def check_frames(answer: bytes) -> None:
    """Raises Wrong when an answer is no sequence of frames, or tells of an internal error."""
    at = 0
    while at + HEAD_BYTES <= len(answer):
        length, kind = int.from_bytes(answer[at : at + 3], "big"), answer[at + 3]
        payload = answer[at + HEAD_BYTES : at + HEAD_BYTES + length]
        if kind > frames.CONTINUATION:
            raise Wrong(f"a frame of kind {kind}: {answer[at : at + 50]!r}")
        if kind == frames.GOAWAY and payload[4:8] == b"\0\0\0\2":
            raise Wrong(f"the connection ends by an internal error: {payload[8:]!r}")
        at += HEAD_BYTES + length
    if b"This is a bug" in answer:
        raise Wrong(f"the answer calls itself a bug: {answer[-300:]!r}")
