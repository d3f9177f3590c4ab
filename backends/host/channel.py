"""Framed messages over a Unix stream socket, each with at most one file descriptor.

Strictly question and answer: whoever has sent receives next, so a read never meets the start of
a second message. Bytes in, bytes out; `backends.host.messages` says what they mean.
"""

import array
import os
import socket
from typing import NamedTuple

_HEADER_BYTES = 4
_CHUNK_BYTES = 16 * 1024
_LIMIT_BYTES = 256 * 1024 * 1024
_ROOM_FOR_ONE_FD = socket.CMSG_SPACE(4)


class Received(NamedTuple):
    """One message; `fd` is -1 when none came with it, else it belongs to the receiver."""

    payload: bytes
    fd: int


class Channel:
    """One end of the conversation between a server and one of its workers."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, payload: bytes, fd: int = -1) -> None:
        """Send one message; blocks until the other side has room. Raises `OSError` when it is
        gone. `fd` is duplicated into the other process and stays the caller's."""
        frame = len(payload).to_bytes(_HEADER_BYTES, "little") + payload
        if fd < 0:
            self._socket.sendall(frame)
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        sent = self._socket.sendmsg([frame], rights)
        if sent < len(frame):
            self._socket.sendall(frame[sent:])

    def receive(self, timeout: float | None = None) -> Received:
        """Wait for one message.

        Raises `EOFError` when the other side is gone, `TimeoutError` after `timeout` seconds
        without a byte, `ValueError` when what came is not a message.
        """
        self._socket.settimeout(timeout)
        fds: list[int] = []
        try:
            data = self._read(fds)
            length = int.from_bytes(data[:_HEADER_BYTES], "little")
            if length > _LIMIT_BYTES:
                raise ValueError(f"a message of {length} bytes; the limit is {_LIMIT_BYTES}")
            missing = _HEADER_BYTES + length - len(data)
            if missing > 0:
                data += self._read_rest(missing, fds)
            elif missing < 0:
                raise ValueError("two messages at once")
            return Received(data[_HEADER_BYTES:], fds.pop(0) if fds else -1)
        finally:
            for extra in fds:
                os.close(extra)

    def _read(self, fds: list[int]) -> bytes:
        data = b""
        while len(data) < _HEADER_BYTES:
            data += self._read_some(_CHUNK_BYTES, fds)
        return data

    def _read_rest(self, missing: int, fds: list[int]) -> bytes:
        parts: list[bytes] = []
        while missing:
            part = self._read_some(min(missing, 1 << 20), fds)
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _read_some(self, limit: int, fds: list[int]) -> bytes:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                limit, _ROOM_FOR_ONE_FD, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            raise EOFError("the other side is gone") from None
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.extend(array.array("i", rights[: len(rights) // 4 * 4]))
        if not data:
            raise EOFError("the other side is gone")
        return data

    def shutdown(self) -> None:
        """Wake whoever is blocked in `receive` with `EOFError`; may be called from any thread."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # already disconnected, which is all we wanted
            return

    def close(self) -> None:
        """Close this end; nobody may be using it."""
        self._socket.close()
