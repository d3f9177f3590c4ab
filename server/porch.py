"""What stands around the REST application: the locks of restricted APIs, the access log.

`server.http` builds it; each part is there only when its setting is. For infer, which never
reaches the application, `LoggedExchange` keeps the same log and `server.infer_http.TurnedAway`
answers who lacks a key.
"""

import re
import time
from typing import Any
from urllib.parse import unquote

from server.access_log import GONE, AccessLog, Entry
from server.codec_json import Encoded
from server.envelope import text_headers
from server.errors import Restricted
from server.infer_http import Exchange, RestConnection, TurnedAway
from server.rest_errors import error_body, visible
from server.restricted import Locks, category_of_path, http_text

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/|\Z)")


class RestrictedApp:
    """Lets requests to a restricted API through only with its header."""

    def __init__(self, app: Any, locks: Locks) -> None:
        self._app = app
        self._locks = locks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        lock = self._locks.get(category_of_path(scope["path"]) or "")
        if lock is None or lock.opens(text_headers(scope["headers"])):
            await self._app(scope, receive, send)
            return
        status, text = visible(Restricted(http_text(lock)))
        body = error_body(text)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),  # whatever body was on its way is not read
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class LoggedApp:
    """Tells the access log of every request the application answers."""

    def __init__(self, app: Any, log: AccessLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._log.chosen():
            await self._app(scope, receive, send)
            return
        began_ns = time.monotonic_ns()
        seen = _Seen(receive, send)
        try:
            await self._app(scope, seen.receive, seen.send)
        finally:
            found = _MODEL.match(scope["path"])
            model, version = found.groups("") if found else ("", "")
            self._log.write(
                Entry(
                    protocol="http",
                    client=client_text(scope["client"]),
                    method=scope["method"],
                    path=scope["path"],
                    status=seen.status if seen.ended else GONE,
                    began_ns=began_ns,
                    duration_us=(time.monotonic_ns() - began_ns) // 1000,
                    bytes_in=seen.bytes_in,
                    bytes_out=seen.bytes_out,
                    model=model,
                    version=version,
                )
            )


class _Seen:
    """Counts what passes through one request's `receive` and `send`."""

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive = receive
        self._send = send
        self.status = 0
        self.ended = False
        self.bytes_in = self.bytes_out = 0

    async def receive(self) -> Any:
        message = await self._receive()
        self.bytes_in += len(message.get("body", b""))
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.bytes_out += len(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        await self._send(message)


def client_text(client: tuple[str, int] | None) -> str:
    """Address and port; "unix" for a client that has neither."""
    if client is None:
        return "unix"
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Logged(Exchange):
    """An Exchange that tells the access log what became of it."""

    __slots__ = ("_log", "_started_ns", "_uploaded_ns")

    def __init__(self, protocol: RestConnection, asked: re.Match[bytes]) -> None:
        super().__init__(protocol, asked)
        assert protocol.log is not None
        self._log = protocol.log
        self._started_ns = self._uploaded_ns = time.monotonic_ns()

    def received(self) -> None:
        self._uploaded_ns = time.monotonic_ns()
        super().received()

    def _write(self, status: int, encoded: Encoded, more: bytes = b"") -> None:
        super()._write(status, encoded, more)
        self._tell(status, sum(map(len, encoded.parts)))

    def abandon(self) -> None:
        unanswered = not self.response_complete
        super().abandon()
        if unanswered:
            self._tell(GONE, 0)

    def _tell(self, status: int, bytes_out: int) -> None:
        if not self._log.chosen():
            return
        now_ns, (model, version) = time.monotonic_ns(), self._asked.groups(b"")
        self._log.write(
            Entry(
                protocol="http",
                client=client_text(self._protocol.client),
                method="POST",
                path=unquote(self._asked.string.decode("latin-1")),
                status=status,
                began_ns=self._started_ns,
                duration_us=(now_ns - self._started_ns) // 1000,
                upload_us=(self._uploaded_ns - self._started_ns) // 1000,
                bytes_in=self.size,
                bytes_out=bytes_out,
                id=self.request_id,
                model=unquote(model.decode("latin-1")),
                version=version.decode() or str(self.version or ""),
            )
        )


class LoggedExchange(_Logged):
    """One that is answered."""

    __slots__ = ()


class LoggedTurnedAway(_Logged, TurnedAway):
    """One that lacks its key."""

    __slots__ = ()
