"""A way to PostgreSQL that can be cut: `with severable(url) as way`, connect to `way.url`.

`way.cut()` ends every connection and refuses new ones, `way.mend()` lets them in again.
`way.freeze()` takes connections and bytes and passes nothing on, `way.thaw()` does.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.engine import make_url

from support.server import free_ports

_CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.1


class Way:
    """Carries bytes from a port of its own to the server's, each connection on two threads."""

    def __init__(self, url: str) -> None:
        target = make_url(url)
        self._target = (target.host or "127.0.0.1", target.port or 5432)
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._own = threading.Lock()
        self._listener = _listening(free_ports(1)[0])
        self.port: int = self._listener.getsockname()[1]
        self.url = target.set(host="127.0.0.1", port=self.port).render_as_string(False)
        self._accepting = self._begin()

    def cut(self) -> None:
        """Nobody answers from now on, neither old connections nor new ones."""
        self._listener.close()
        self._accepting.join(60)
        with self._own:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Whoever asks waits for ever: nothing is closed, nothing is answered."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def mend(self) -> None:
        self._listener = _listening(self.port)
        self._accepting = self._begin()

    def _begin(self) -> threading.Thread:
        accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        accepting.start()
        return accepting

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            client.settimeout(None)
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            pair = {client, server}
            with self._own:
                self._open |= pair
            back = threading.Thread(target=self._pour, args=(server, client), daemon=True)
            back.start()
            self._pour(client, server)
            back.join(60)
            with self._own:
                self._open -= pair

    def _pour(self, source: socket.socket, target: socket.socket) -> None:
        """Until either end is gone; then both are."""
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                target.sendall(chunk)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def severable(url: str) -> Iterator[Way]:
    way = Way(url)
    try:
        yield way
    finally:
        way.thaw()
        way.cut()


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    listener.settimeout(_LOOK_S)
    return listener
