"""What stands around the REST application: the locks of restricted APIs, the gate, the access log.

`server.rest.inference_listener` builds it; locks and log are there only when their setting is. For
infer, which never reaches the application, `LoggedInferExchange` keeps the same log and
`server.rest.protocol.RejectedExchange` answers whom the lock or the gate turns away.
"""

import re
import time
from typing import Any
from urllib.parse import unquote

from control.access.scopes import Action, id_of
from server.access.credentials import authorization_in
from server.access.permissions import ask_of_path, is_openai
from server.access.sites import SitePolicy
from server.codec.json_infer import EncodedResponse
from server.dataplane import DataPlane
from server.errors import Restricted, ServingError
from server.logs.access import GONE, AccessLog, AccessLogEntry
from server.rest.envelope import Headers, body_bytes, text_headers
from server.rest.errors import error_body, headers_of, visible
from server.rest.infer import InferExchange, RestConnection
from server.rest.openai_errors import refusal as openai_refusal
from server.rest.protocol import RejectedExchange
from server.settings.restricted import Locks, category_of_path, http_text

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/|\Z)")


class SiteMiddleware:
    """Lets through what was meant for this server and not sent by another site's page."""

    def __init__(self, app: Any, sites: SitePolicy) -> None:
        self._app = app
        self._sites = sites

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._sites.refusal(scope["method"], scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _turn_away(scope, send, refusal)


class RestrictedApiMiddleware:
    """Lets requests to a restricted API through only with its header."""

    def __init__(self, app: Any, locks: Locks) -> None:
        self._app = app
        self._locks = locks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        lock = self._locks.get(category_of_path(scope["path"]) or "")
        if lock is None or lock.opens(text_headers(scope["headers"])):
            await self._app(scope, receive, send)
            return
        await _turn_away(scope, send, Restricted(http_text(lock)))


class AuthorizationMiddleware:
    """Lets through what the gate allows, and notes in the scope who asks, as `principal`."""

    def __init__(self, app: Any, dataplane: DataPlane) -> None:
        self._app = app
        self._dataplane = dataplane

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if self._dataplane.authorizer.watches else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _turn_away(scope, send, refusal)

    def _refusal(self, scope: Any) -> ServingError | None:
        if is_openai(scope["path"]):
            return self._refusal_without_model(scope)
        ask = ask_of_path(scope["method"], scope["path"])
        if ask is None:
            return None
        shown = authorization_in(scope["headers"])
        verdict = self._dataplane.judge(shown, ask.action, ask.name)
        if verdict.principal is not None:
            scope["principal"] = verdict.principal
        return verdict.refusal

    def _refusal_without_model(self, scope: Any) -> ServingError | None:
        """Of a path whose model stands in the body: whoever may use no model at all sends none."""
        authorizer = self._dataplane.authorizer
        try:
            holder = authorizer.admit(authorization_in(scope["headers"]))
            if holder is not None:
                scope["principal"], scope["holder"] = holder.principal, holder
                if scope["method"] == "POST":
                    authorizer.authorise_any(holder, Action.INFER)
        except ServingError as error:
            return error.with_traceback(None)
        return None


async def _turn_away(scope: Any, send: Any, refusal: ServingError) -> None:
    about = f"{scope['method']} {scope['path']}"
    if is_openai(scope["path"]):
        status, body, more = openai_refusal(refusal, about)
    else:
        status, text = visible(refusal, about)
        body, more = error_body(text), headers_of(refusal)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    if _has_body(scope["headers"]):
        headers.append((b"connection", b"close"))  # it is on its way, and is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _has_body(headers: Headers) -> bool:
    return body_bytes(headers) > 0 or any(name == b"transfer-encoding" for name, _ in headers)


class AccessLogMiddleware:
    """Tells the access log of every request the application answers."""

    def __init__(self, app: Any, log: AccessLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._log.chosen():
            await self._app(scope, receive, send)
            return
        began_ns = time.monotonic_ns()
        counter = _ByteCounter(receive, send)
        try:
            await self._app(scope, counter.receive, counter.send)
        finally:
            found = _MODEL.match(scope["path"])
            model, version = found.groups("") if found else scope.get("answering", ("", ""))
            self._log.write(
                AccessLogEntry(
                    protocol="http",
                    client=self._log.client(client_text(scope["client"]), scope["headers"]),
                    method=scope["method"],
                    path=scope["path"],
                    status=counter.status if counter.ended and not counter.gone else GONE,
                    began_ns=began_ns,
                    duration_us=(time.monotonic_ns() - began_ns) // 1000,
                    bytes_in=counter.bytes_in,
                    bytes_out=counter.bytes_out,
                    id=scope.get("request_id", ""),
                    model=model,
                    version=version,
                    principal=id_of(scope.get("principal")),
                    route=scope.get("target", ""),
                )
            )


class _ByteCounter:
    """Counts what passes through one request's `receive` and `send`."""

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive = receive
        self._send = send
        self.status = 0
        self.ended = False
        self.gone = False
        """Whether the client went before the answer's end, if anybody waited for that."""
        self.bytes_in = self.bytes_out = 0

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self.ended:
            self.gone = True
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


class _AccessLoggedExchange(InferExchange):
    """An Exchange that tells the access log what became of it."""

    __slots__ = ("_log", "_started_ns", "_uploaded_ns")

    def __init__(self, protocol: RestConnection, target: re.Match[bytes]) -> None:
        super().__init__(protocol, target)
        assert protocol.log is not None
        self._log = protocol.log
        self._started_ns = self._uploaded_ns = time.monotonic_ns()

    def received(self) -> None:
        self._uploaded_ns = time.monotonic_ns()
        super().received()

    def _write(self, status: int, encoded: EncodedResponse, more: bytes = b"") -> None:
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
        now_ns = time.monotonic_ns()
        self._log.write(
            AccessLogEntry(
                protocol="http",
                client=self._log.client(client_text(self._protocol.client), self.headers),
                method="POST",
                path=unquote(self.infer.string.decode("latin-1")),
                status=status,
                began_ns=self._started_ns,
                duration_us=(now_ns - self._started_ns) // 1000,
                upload_us=(self._uploaded_ns - self._started_ns) // 1000,
                bytes_in=self.size,
                bytes_out=bytes_out,
                id=self.request_id,
                model=self.model,
                version=self.version or str(self.answered_by or ""),
                principal=id_of(self.principal),
                route=self.arm,
            )
        )


class LoggedInferExchange(_AccessLoggedExchange):
    """One that is answered."""

    __slots__ = ()


class LoggedRejectedExchange(_AccessLoggedExchange, RejectedExchange):
    """One that is turned away."""

    __slots__ = ()
