"""Clients that connect at once are let in at once: uvloop accepts one a turn of the loop.

A turn also serves who is in already, so that of a thousand the last waited for seconds while the
first were answered dozens of times. The first of each turn still comes by uvloop, which is cheaper
by a third.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

_Joining = asyncio.Task[tuple[asyncio.Transport, asyncio.Protocol]]

AT_ONCE = 128
"""Accepted in a turn, some 0.1 ms each; those who are in have their turn then."""


class BurstAcceptor:
    """Accepts what waits at the sockets of a server that has just accepted one; on the loop."""

    def __init__(
        self, connect: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = connect
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._accepting: dict[_Joining, socket.socket] = {}
        self._due = False
        self._closed = False

    def connect(self) -> asyncio.Protocol:
        """The protocol of a client that the server has accepted; more may wait."""
        self._look_soon()
        return self._protocol()

    def open(self, sockets: Sequence[socket.socket]) -> None:
        """Accept at these, of which copies are kept until `close`."""
        self._sockets = [socket.socket(fileno=os.dup(one.fileno())) for one in sockets]

    def close(self) -> None:
        """Accept no more; who is being let in is sent away. Nothing is cancelled: uvloop would
        close the transport of a protocol that is connected, and never tell the protocol."""
        self._closed = True
        for one in self._sockets:
            one.close()
        self._sockets = []
        if self._tls is not None:
            for client in self._accepting.values():
                with suppress(OSError):  # it has left
                    client.shutdown(socket.SHUT_RDWR)  # ends its handshake

    def _look_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        for listening in self._sockets:
            for _ in range(AT_ONCE):
                try:
                    client, _ = listening.accept()
                except OSError:  # nobody waits, or there is no descriptor, which uvloop tells of
                    break
                self._let_in(client)
            else:
                self._look_soon()

    def _let_in(self, client: socket.socket) -> None:
        client.setblocking(False)
        joining = self._loop.connect_accepted_socket(self._protocol, client, ssl=self._tls)
        task = self._loop.create_task(joining)
        self._accepting[task] = client
        task.add_done_callback(self._joined)

    def _joined(self, task: _Joining) -> None:
        del self._accepting[task]
        if task.cancelled() or task.exception() is not None:
            return  # a client that leaves in its handshake is nobody's fault
        if self._closed:
            task.result()[0].abort()
