"""A receiver of webhooks on a local port, with every way to answer badly: `with receiver() as r`.

`r.messages` are the posts in order; `r.answers` what is answered to the next ones, 200 after that.
"""

import http.server
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Posted:
    """One post as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True)
class Reply:
    """`raw` instead of everything else; `hold`: no answer before the event is set."""

    status: int = 200
    body: bytes = b"ok"
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes = b""
    hold: threading.Event | None = None


@dataclass
class Receiver:
    port: int = 0
    messages: list[Posted] = field(default_factory=list)
    answers: deque[Reply] = field(default_factory=deque)
    usual: Reply = field(default_factory=Reply)
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    @property
    def prefix(self) -> str:
        """What the server's settings must allow."""
        return f"{self.scheme}://127.0.0.1:{self.port}/"

    def wait(self, count: int, seconds: float = PATIENCE_S) -> list[Posted]:
        """The messages once there are so many."""
        until = time.monotonic() + seconds
        while len(self.messages) < count:
            assert time.monotonic() < until, f"{len(self.messages)} of {count} messages came"
            time.sleep(0.01)
        return self.messages


@contextmanager
def receiver(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """`port`: a free one unless given."""
    found = Receiver(scheme="https" if tls else "http")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.messages.append(Posted(self.path, headers, body))
            reply = found.answers.popleft() if found.answers else found.usual
            if reply.hold is not None:
                reply.hold.wait(PATIENCE_S)
            if reply.raw:
                self.wfile.write(reply.raw)
                return
            self.send_response(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Who asked may go away before the answer."""

    server = Server(("127.0.0.1", port), Handler)
    found.port = server.server_address[1]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()
