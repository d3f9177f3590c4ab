"""Who is at the other end of a Unix socket: the kernel says, and the request's scope carries it."""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from repository.sandbox.peer import is_confined

PEER_UID = "peer_uid"
_UCRED = struct.Struct("3i")


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol for the socket `api.sock`: `scope["state"]["peer_uid"]` is set.

    A peer whose user cannot be told has no such key, and is nobody.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        uid = peer_uid(transport.get_extra_info("socket"))
        if uid is not None:
            self.app_state: dict[str, Any] = {**self.app_state, PEER_UID: uid}
        super().connection_made(transport)


def peer_uid(connection: Any) -> int | None:
    """The user id of a connected Unix socket's peer; None for other sockets and systems, and for a
    confined process, which is nobody here."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or connection is None or connection.family != socket.AF_UNIX:
        return None
    if is_confined(connection):
        return None
    packed = connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size)
    uid: int = _UCRED.unpack(packed)[1]
    return uid
