"""A gRPC port of `server.http2` on a loop in a thread, and a client of raw frames.

`with serving() as server` answers the methods of METHODS; clients of any kind may then call from
the test's own thread.
"""

import asyncio
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from server.http2.calls.service import StreamingMethod, UnaryCall, UnaryMethod
from server.http2.calls.status import CallFailed
from server.http2.calls.streaming_call import StreamingCall
from server.http2.connection import Splitter
from server.http2.limits import GrpcLimits, unbounded
from server.http2.listener import Http2Listener, listen
from server.http2.wire import frames
from server.http2.wire.frames import ErrorCode, Http2Setting
from server.http2.wire.hpack import Headers, HpackDecoder, literal
from server.listen_address import ListenAddress

LIMIT = 200 * 2**20
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
POST: Headers = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t/Echo"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


class Served:
    """The open port, and what its methods noticed. `waiting`: calls of `/t/Wait` unanswered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.listener: Http2Listener
        self.waiting: list[UnaryCall] = []
        self.cancelled = 0
        self.read = 0
        self.written = 0
        self.unexpected: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.unexpected.append(context))

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """`work()`'s result, from the loop's thread; a coroutine is awaited there."""

        async def run() -> Any:
            result = work()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def wait_for(self, true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Poll until `true()` holds."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            time.sleep(0.002)

    def answer_waiting(self) -> None:
        def answer() -> None:
            for call in self.waiting:
                call.finish(b"waited")
            self.waiting.clear()

        self.on_loop(answer)

    # the methods

    def methods(self) -> dict[str, UnaryMethod | StreamingMethod]:
        return {
            "/t/Echo": UnaryMethod(lambda data, call: call.finish(data)),
            "/t/Wait": UnaryMethod(self._wait),
            "/t/Broken": UnaryMethod(self._broken),
            "/t/Talk": StreamingMethod(self._talk),
            "/t/Sip": StreamingMethod(self._sip),
            "/t/Pour": StreamingMethod(self._pour),
            "/t/Sleep": StreamingMethod(self._sleep),
            "/t/Refuse": StreamingMethod(self._refuse),
            "/t/Metadata": StreamingMethod(self._metadata),
        }

    def _wait(self, data: bytes, call: UnaryCall) -> None:
        def cancelled() -> None:
            self.cancelled += 1

        call.on_cancel = cancelled
        self.waiting.append(call)

    def _broken(self, data: bytes, call: UnaryCall) -> None:
        raise ValueError("of its own making")

    async def _talk(self, call: StreamingCall) -> None:
        async for message in call.messages():
            await call.write(message)

    async def _sip(self, call: StreamingCall) -> None:
        """Take one message, then none."""
        async for _ in call.messages():
            self.read += 1
            await asyncio.Event().wait()

    async def _pour(self, call: StreamingCall) -> None:
        """Write without end, as fast as allowed."""
        size = int(await call.message())
        while True:
            await call.write(b"x" * size)
            self.written += size

    async def _sleep(self, call: StreamingCall) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1

    async def _refuse(self, call: StreamingCall) -> None:
        raise CallFailed("NOT_FOUND", (await call.message()).decode())

    async def _metadata(self, call: StreamingCall) -> None:
        await call.write(repr([*call.metadata, call.time_remaining()]).encode())


@contextmanager
def serving(
    loop: str = "uvloop",
    limits: GrpcLimits | None = None,
    clean: bool = True,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    """An open port; with `clean`, nothing may have gone wrong on its loop in the end."""
    opened: list[Served] = []
    up, done = threading.Event(), threading.Event()

    async def main() -> None:
        served = Served(asyncio.get_running_loop())
        place = ListenAddress("127.0.0.1", 0, tls)
        served.listener = await listen(served.methods(), place, limits or unbounded(LIMIT))
        opened.append(served)
        up.set()
        await asyncio.to_thread(done.wait)
        await served.listener.stop(0.0)

    def run() -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(60), "the port did not open"
        yield opened[0]
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive(), "the port did not close"
    assert not clean or opened[0].unexpected == []


class Raw:
    """A client that sends what it likes. Reads frames until what a test waits for is there."""

    def __init__(self, port: int, greet: bool = True, **settings: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = Splitter()
        self._splitter.greeted = True
        self._splitter._needed_bytes = frames.HEAD_BYTES
        self._seen: list[tuple[int, int, int, bytes]] = []
        self._decoder = HpackDecoder()
        self.closed = False
        self.granted: Counter[int] = Counter()
        """Bytes the server has let us send beyond its first windows, by stream."""
        if greet:
            pairs = {Http2Setting[name.upper()]: value for name, value in settings.items()}
            self.send(frames.PREFACE, frames.settings(pairs))

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        self.socket.sendall(b"".join(pieces))

    def next(self, kind: int, stream_id: int | None = None) -> tuple[int, bytes]:
        """(flags, payload) of the next frame of a kind; others before it are skipped."""
        while True:
            for place, (found, flags, on, payload) in enumerate(self._seen):
                if found == kind and stream_id in (None, on):
                    del self._seen[: place + 1]
                    return flags, payload
            self._seen.clear()
            assert self._read(), f"closed before a frame of kind {kind}"

    def _read(self) -> bool:
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError:
            data = b""
        self.closed = not data
        for found in self._splitter.feed(data) if data else ():
            self._seen.append(found)
            kind, _, stream_id, payload = found
            if kind == frames.WINDOW_UPDATE:
                self.granted[stream_id] += int.from_bytes(payload, "big")
        return bool(data)

    def goaway(self) -> ErrorCode:
        """The code the server sends the client away with; it closes after that."""
        _, payload = self.next(frames.GOAWAY)
        while not self.closed:
            self._read()
        return ErrorCode(int.from_bytes(payload[4:8], "big"))

    def reset(self, stream_id: int) -> ErrorCode:
        _, payload = self.next(frames.RST_STREAM, stream_id)
        return ErrorCode(int.from_bytes(payload, "big"))

    def headers(self, stream_id: int) -> dict[bytes, bytes]:
        _, block = self.next(frames.HEADERS, stream_id)
        return dict(self._decoder.decode(block))

    def status(self, stream_id: int) -> int:
        """grpc-status, from the first header block that has one."""
        while True:
            found = self.headers(stream_id)
            if b"grpc-status" in found:
                return int(found[b"grpc-status"])

    def ping(self) -> None:
        """Return when the server has taken all that was sent before."""
        self.send(frames.frame(frames.PING, 0, 0, b"whereyou"))
        while self.next(frames.PING) != (frames.ACK, b"whereyou"):
            pass


def ask(stream_id: int, headers: Headers = POST, flags: int = frames.END_HEADERS) -> bytes:
    """A HEADERS frame."""
    return frames.frame(frames.HEADERS, flags, stream_id, literal(headers))


def to(path: str) -> Headers:
    """The headers of a call of `path`."""
    return tuple((name, path.encode() if name == b":path" else value) for name, value in POST)


def data(stream_id: int, payload: bytes, flags: int = frames.END_STREAM) -> bytes:
    return frames.frame(frames.DATA, flags, stream_id, payload)


def message(content: bytes) -> bytes:
    """A gRPC message behind its prefix."""
    return b"\0" + len(content).to_bytes(4, "big") + content


def works(raw: Raw, stream_id: int) -> bool:
    """Whether the connection still answers a call."""
    raw.send(ask(stream_id), data(stream_id, message(b"still here")))
    _, answer = raw.next(frames.DATA, stream_id)
    return answer == message(b"still here") and raw.status(stream_id) == 0
