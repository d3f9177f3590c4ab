"""Where a listener listens: a port or a Unix socket, with or without TLS, for both protocols."""

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from server.burst_acceptor import BurstAcceptor
from server.settings.listeners import UNIX

_BACKLOG = 2048


class ListenAddress(NamedTuple):
    """An address and a port (0: any free one), or "unix:PATH"; in clear text without `tls`."""

    address: str
    port: int
    tls: ssl.SSLContext | None = None
    reuse_port: bool = False


class ListeningSocket:
    """An open place. `port` is the number it got, 0 for a Unix socket."""

    def __init__(self, server: asyncio.Server, bursts: BurstAcceptor, path: str = "") -> None:
        """`path`: of a Unix socket, removed in the end."""
        self._server = server
        self._bursts = bursts
        bursts.open(server.sockets)
        self._path = path
        self.port: int = 0 if path else server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Accept no more."""
        self._bursts.close()
        self._server.close()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


async def open_place(
    place: ListenAddress, connect: Callable[[], asyncio.Protocol]
) -> ListeningSocket:
    """Listen; each client gets a protocol from `connect`. Raises OSError."""
    loop = asyncio.get_running_loop()
    address, tls = place.address, place.tls
    bursts = BurstAcceptor(connect, tls)
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        await asyncio.to_thread(free_socket_path, path)
        server = await loop.create_unix_server(bursts.connect, path, backlog=_BACKLOG, ssl=tls)
        return ListeningSocket(server, bursts, path)
    server = await loop.create_server(
        bursts.connect,
        address,
        place.port,
        backlog=_BACKLOG,
        ssl=tls,
        reuse_port=place.reuse_port or None,
    )
    return ListeningSocket(server, bursts)


def free_socket_path(path: str) -> None:
    """Remove a socket that its server left behind. Raises OSError when one listens there still."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            raise FileExistsError(0, "there is a file of that name which is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise OSError(0, "another server listens on that socket")


def url_of(place: ListenAddress, port: int) -> str:
    """As one would write it to call: http(s)://HOST:PORT, or unix:PATH."""
    if place.address.startswith(UNIX):
        return place.address
    return f"http{'s' if place.tls else ''}://{_host(place.address)}:{port}"


def grpc_address(address: str, port: int) -> str:
    """As a gRPC client takes it: HOST:PORT, or unix:PATH."""
    return address if address.startswith(UNIX) else f"{_host(address)}:{port}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
