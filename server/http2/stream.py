"""One HTTP/2 stream: a request coming in, a response going out.

`server.http2.session` opens it and feeds its Receiver; the receiver answers through its `sender`.
"""

from typing import Protocol

from server.buffers import BufferAccount
from server.http2.sender import OutgoingStream, Sender
from server.http2.stall_detector import PeerWait
from server.http2.wire.frames import window_update
from server.http2.wire.hpack import Headers

STREAM_WINDOW = 4 * 1024 * 1024
"""Bytes a peer may send on a stream before they are released."""


class Receiver(Protocol):
    """Who reads a request. Called on the loop; nothing may block or raise."""

    def received(self, data: bytes, last: bool) -> None:
        """More of the body, never empty; `last`: `ended` follows at once. Release what need not be
        held back (`Http2Stream.release`)."""

    def ended(self) -> None:
        """The body is complete."""

    def aborted(self) -> None:
        """The peer reset the stream, or is gone: nobody reads an answer. The last call."""

    def awaits(self) -> PeerWait | None:
        """What of the request is missing; None where the peer need not send anything."""

    def expired(self, text: str) -> None:
        """The peer takes too long over the request: end the call, saying `text`."""


class Http2Stream(OutgoingStream):
    """An open stream. `expected`: bytes of body still to come if the head said how many."""

    __slots__ = ("_unreleased", "expected", "receive_window", "received_all", "receiver", "sender")

    def __init__(self, stream_id: int, sender: Sender) -> None:
        super().__init__(stream_id, sender.initial_window)
        self.sender = sender
        self.receive_window = STREAM_WINDOW
        self._unreleased = 0
        self.expected: int | None = None
        self.received_all = False
        self.receiver: Receiver | None = None

    @property
    def account(self) -> BufferAccount:
        """What the connection may hold."""
        return self.sender.account

    @property
    def client(self) -> str:
        """The peer's address and port; "unix" for one that has neither."""
        transport = self.sender.transport
        name = transport.get_extra_info("peername") if transport is not None else None
        if not isinstance(name, tuple):
            return "unix"
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    def release(self, size: int) -> None:
        """The peer may send `size` bytes more; told to it when it is worth a frame."""
        self._unreleased += size
        if self._unreleased >= STREAM_WINDOW // 2 and not self.received_all:
            self.sender.control(window_update(self.id, self._unreleased))
            self.receive_window += self._unreleased
            self._unreleased = 0


class StreamService(Protocol):
    """What answers requests; one for all connections. `StreamHead` is its own kind of thing."""

    def read(self, headers: Headers) -> "StreamHead":
        """What a header block asks for. Raises MalformedHeaders for what is no request at all."""

    def oversized(self) -> "StreamHead":
        """Stands for a header block too large to keep."""

    def open(self, stream: Http2Stream, head: "StreamHead") -> Receiver:
        """Take a request; may answer at once."""


class StreamHead(Protocol):
    """What was read of a request's header block; frozen, and shared by requests that say the same.

    `content_length`: bytes of body as the peer announced them, or None.
    """

    @property
    def content_length(self) -> int | None: ...


class MalformedHeaders(Exception):
    """A header block that is no HTTP/2 request; the stream is reset."""
