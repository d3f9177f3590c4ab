"""A channel's end on an event loop: the frames of `repository.process.channel`, never blocking.

For whoever answers a process on the loop itself, without a thread in between. Every method belongs
to the loop's thread.
"""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from repository.process.channel import (
    HEADER_BYTES,
    MOST_FDS,
    SHORTAGE_RETRY_SECS,
    SHORTAGE_SECS,
    SHORTAGES,
    WITH_FD,
    ChannelMessage,
)

_READ_BYTES = 64 * 1024
_ROOM_FOR_ONE_FD = socket.CMSG_SPACE(4)
_FULL_MESSAGES = 64
"""Messages that wait for the other side to read; beyond them nothing more is read from it."""


class LoopChannel:
    """Owns its socket. `receive(message)` is called once per message, in order; when it raises,
    what came is no message, or the kernel has no room for one of ours for `SHORTAGE_SECS`,
    `broken(error)` is called, and `broken(None)` when the peer has gone; nothing follows either.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        most_bytes: int,
        receive: Callable[[ChannelMessage], None],
        broken: Callable[[Exception | None], None],
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._loop = loop
        self._most_bytes = most_bytes
        self._receive = receive
        self._broken = broken
        self._ahead = bytearray()
        self._fds: deque[int] = deque()
        self._unsent: deque[tuple[memoryview, int]] = deque()
        self._open = True
        self._short_since = 0.0
        self._retry: asyncio.TimerHandle | None = None
        loop.add_reader(sock.fileno(), self._readable)

    def send(self, payload: bytes, fd: int = -1) -> None:
        """Send one message soon; `fd` is closed after it was sent. Nothing after the end."""
        if not self._open:
            _close(fd)
            return
        length = len(payload) if fd < 0 else len(payload) | WITH_FD
        frame = length.to_bytes(HEADER_BYTES, "little") + payload
        if fd < 0 and not self._unsent and self._send_at_once(frame):
            return
        self._unsent.append((memoryview(frame), fd))
        if len(self._unsent) == 1:
            self._writable()
            if self._unsent and self._open and self._retry is None:
                self._loop.add_writer(self._socket.fileno(), self._writable)
        elif len(self._unsent) == _FULL_MESSAGES:
            self._loop.remove_reader(self._socket.fileno())

    def _send_at_once(self, frame: bytes) -> bool:
        """Whether the kernel has taken all of it, as it does nearly always; what is left of it
        waits."""
        try:
            sent = self._socket.send(frame)
        except OSError:  # `_writable` will meet it too
            return False
        if sent < len(frame):
            self._unsent.append((memoryview(frame)[sent:], -1))
            self._loop.add_writer(self._socket.fileno(), self._writable)
        return True

    def close(self) -> None:
        """Close the socket and every descriptor nobody has received. Idempotent."""
        if not self._open:
            return
        self._open = False
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for fd in (*self._fds, *(fd for _, fd in self._unsent)):
            _close(fd)
        self._fds.clear()
        self._unsent.clear()

    def _writable(self) -> None:
        try:
            while self._unsent:
                frame, fd = self._unsent[0]
                sent = self._send_some(frame, fd)
                _close(fd)  # it went with the first byte
                self._short_since = 0.0
                if sent < len(frame):
                    self._unsent[0] = (frame[sent:], -1)
                    return
                self._unsent.popleft()
                if len(self._unsent) == _FULL_MESSAGES - 1:
                    self._loop.add_reader(self._socket.fileno(), self._readable)
        except BlockingIOError:
            return
        except OSError as error:
            self._refused(error)
            return
        self._loop.remove_writer(self._socket.fileno())

    def _send_some(self, frame: memoryview, fd: int) -> int:
        if fd < 0:
            return self._socket.send(frame)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        return self._socket.sendmsg([frame], rights)

    def _refused(self, error: OSError) -> None:
        """The kernel takes no message: try again soon, or end."""
        if error.errno not in SHORTAGES:
            self._end(None)
            return
        now = self._loop.time()
        self._short_since = self._short_since or now
        if now - self._short_since > SHORTAGE_SECS:
            self._end(error)
            return
        self._loop.remove_writer(self._socket.fileno())  # it is writable, which says nothing
        self._retry = self._loop.call_later(SHORTAGE_RETRY_SECS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._loop.add_writer(self._socket.fileno(), self._writable)

    def _readable(self) -> None:
        try:
            data = self._read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(None)
            return
        try:
            if not (self._ahead or self._fds) and self._is_one(data):
                self._receive(ChannelMessage(data[HEADER_BYTES:], -1))
                return
            self._ahead += data
            while self._open and (message := self._next()) is not None:
                self._receive(message)
        except Exception as error:  # noqa: BLE001 - a stranger's message; who owns us judges
            self._end(error)

    def _read(self) -> bytes:
        data, ancillary, _, _ = self._socket.recvmsg(
            _READ_BYTES, _ROOM_FOR_ONE_FD, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array.array("i", rights[: len(rights) // 4 * 4]))
        return data

    def _is_one(self, data: bytes) -> bool:
        """Whether it is exactly one message without a descriptor, as it is nearly always."""
        length = len(data) - HEADER_BYTES
        return int.from_bytes(data[:HEADER_BYTES], "little") == length <= self._most_bytes

    def _next(self) -> ChannelMessage | None:
        """The next whole message. Raises ValueError for what is none."""
        if len(self._fds) > MOST_FDS:
            raise ValueError("more descriptors than messages that announce one")
        if len(self._ahead) < HEADER_BYTES:
            return None
        header = int.from_bytes(self._ahead[:HEADER_BYTES], "little")
        end = HEADER_BYTES + (header & ~WITH_FD)
        if end - HEADER_BYTES > self._most_bytes:
            raise ValueError(f"a message of {end - HEADER_BYTES} bytes of {self._most_bytes}")
        if len(self._ahead) < end:
            return None
        payload = bytes(self._ahead[HEADER_BYTES:end])
        del self._ahead[:end]
        if not header & WITH_FD:
            return ChannelMessage(payload, -1)
        if not self._fds:
            raise ValueError("a message without the descriptor it announces")
        return ChannelMessage(payload, self._fds.popleft())

    def _end(self, error: Exception | None) -> None:
        if self._open:
            self.close()
            self._broken(error)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
