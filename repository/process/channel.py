"""Framed messages over a Unix stream socket, each with at most one file descriptor.

Bytes in, bytes out; `backends.process.messages` says what they mean. One thread may send while
another receives.
"""

import array
import errno
import os
import socket
import time
from collections import deque
from typing import NamedTuple

HEADER_BYTES = 4
WITH_FD = 1 << 31
_CHUNK_BYTES = 16 * 1024
_LIMIT_BYTES = 256 * 1024 * 1024
_ROOM_FOR_ONE_FD = socket.CMSG_SPACE(4)
SHORTAGES = (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
"""What the kernel says when it has no room for a message; the peer is still there."""
SHORTAGE_SECS, SHORTAGE_RETRY_SECS = 5.0, 0.05
"""How long it may say so of one message before the sender gives up, and how often that asks."""
MOST_FDS = 4
"""Received and not yet asked for. Reading ends behind each descriptor: there are two at most where
each came with the message that announces it."""


def header(payload: bytes) -> bytes:
    """What precedes a message without a descriptor: its length, in little-endian order."""
    return len(payload).to_bytes(HEADER_BYTES, "little")


class ChannelMessage(NamedTuple):
    """One message; `fd` is -1 when none came with it, else it belongs to the receiver."""

    payload: bytes
    fd: int


class Channel:
    """One end of the conversation between a server and one of its workers."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._ahead = b""
        self._fds: deque[int] = deque()

    def send(self, payload: bytes, fd: int = -1) -> None:
        """Send one message; blocks until the other side has room. Raises `OSError` when it is
        gone, or the kernel has no memory for it. `fd` is duplicated into the other process and
        stays the caller's."""
        number = len(payload) if fd < 0 else len(payload) | WITH_FD
        frame = number.to_bytes(HEADER_BYTES, "little") + payload
        sent, short_until = 0, 0.0
        while sent < len(frame):
            try:
                if fd < 0:
                    sent += self._socket.send(memoryview(frame)[sent:] if sent else frame)
                else:
                    sent = self._send_with_fd(frame, fd)
            except OSError as error:
                if error.errno not in SHORTAGES or 0 < short_until < time.monotonic():
                    raise
                short_until = short_until or time.monotonic() + SHORTAGE_SECS
                time.sleep(SHORTAGE_RETRY_SECS)
                continue
            fd, short_until = -1, 0.0

    def _send_with_fd(self, frame: bytes, fd: int) -> int:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        return self._socket.sendmsg([frame], rights)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for messages with."""
        return self._socket.fileno()

    @property
    def has_message(self) -> bool:
        """Whether `receive` has a whole message without asking the kernel."""
        ahead = self._ahead
        if len(ahead) < HEADER_BYTES:
            return False
        length = int.from_bytes(ahead[:HEADER_BYTES], "little") & ~WITH_FD
        return len(ahead) >= HEADER_BYTES + length

    def receive(self, timeout: float | None = None) -> ChannelMessage:
        """Wait for one message.

        Raises `EOFError` when the peer has closed it, `TimeoutError` after `timeout` seconds
        without a byte, `ValueError` when what came is not a message.
        """
        if self._socket.gettimeout() != timeout:  # or it would be a system call each time
            self._socket.settimeout(timeout)
        data = self._ahead or self._read_some(_CHUNK_BYTES)
        while len(data) < HEADER_BYTES:
            data += self._read_some(_CHUNK_BYTES)
        header = int.from_bytes(data[:HEADER_BYTES], "little")
        length = header & ~WITH_FD
        if length > _LIMIT_BYTES:
            raise ValueError(f"a message of {length} bytes; the limit is {_LIMIT_BYTES}")
        end = HEADER_BYTES + length
        if len(data) < end:
            data += self._read_rest(end - len(data))
        self._ahead = data[end:]
        fd = self._own_fd() if header & WITH_FD else -1
        return ChannelMessage(data[HEADER_BYTES:end], fd)

    def receive_begun(self) -> ChannelMessage | None:
        """The next message, if any of it has come; waits for its rest, and raises, as `receive`."""
        if not self._ahead:
            try:
                self._ahead = self._read_some(_CHUNK_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
        return self.receive()

    def _own_fd(self) -> int:
        """The descriptor that came with a message; descriptors arrive in the messages' order."""
        if not self._fds:
            raise ValueError("a message without the descriptor it announces")
        return self._fds.popleft()

    def _read_rest(self, missing: int) -> bytes:
        parts: list[bytes] = []
        while missing:
            part = self._read_some(min(missing, 1 << 20))
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _read_some(self, limit: int, flags: int = 0) -> bytes:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                limit, _ROOM_FOR_ONE_FD, flags | socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            raise EOFError("the peer has closed the connection") from None
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array.array("i", rights[: len(rights) // 4 * 4]))
                if len(self._fds) > MOST_FDS:
                    raise ValueError("more descriptors than messages that announce one")
        if not data:
            raise EOFError("the peer has closed the connection")
        return data

    def shutdown(self) -> None:
        """Wake whoever is blocked in `receive` with `EOFError`; may be called from any thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # already disconnected, which is all we wanted
            return

    def close(self) -> None:
        """Close this end, and descriptors nobody has received; nobody may be using it."""
        self._socket.close()
        while self._fds:
            os.close(self._fds.popleft())
