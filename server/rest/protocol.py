"""A connection of the REST listener: the infer verb is answered on the spot, all else by ASGI.

httptools calls in with the parsed request. A POST to an infer path becomes an Exchange
(`server.rest.infer`), every other request goes on to the application. `RejectedExchange` answers
whom the lock or the gate turns away.
"""

import re
from typing import Any

import httptools

from control.access.scopes import Action
from server.access.credentials import authorization_in
from server.access.sites import NOTED_HEADERS, authority_of
from server.access.token_holder import AuthorizationResult
from server.errors import Restricted
from server.http1.cors import origin_in, response_lines
from server.rest.envelope import CasePreservedName, body_bytes, text_headers
from server.rest.head_templates import HeadTemplate, HeadTemplates, model_and_version
from server.rest.infer import InferExchange, RestConnection
from server.settings.restricted import http_text

_INFER = re.compile(rb"/v2/models/([^/?]+)(?:/versions/([0-9]+))?/infer(?:\?.*)?\Z")
_NOTED = NOTED_HEADERS | {b"expect"}

READ_ON_BYTES = 2**20
"""A refused request with a body up to this long is read to its end, and the connection stays; of a
longer one nothing is read, and the connection closes."""


class RejectedExchange(InferExchange):
    """A request that may not be made: nothing of its body is kept, and little is read."""

    __slots__ = ()

    def admitted(self) -> None:
        if self.more_body and self._is_not_worth_reading():
            self.keep_alive = False
            self.more_body = False
        super().admitted()

    def receive(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > READ_ON_BYTES:
            self.keep_alive = False
            self.received()

    def _is_not_worth_reading(self) -> bool:
        return self._protocol.expect_100_continue or body_bytes(self.headers) > READ_ON_BYTES

    def _start(self) -> None:
        assert self.refusal is not None
        self._refuse(self.refusal)


class InferProtocol(RestConnection):
    """A connection of the REST listener, with the infer verb answered on the spot.

    An Exchange stands where uvicorn has a RequestResponseCycle. `exchange` is the class of those
    that are answered, `refusal` of those whom the lock or the gate turns away.
    """

    exchange: type[InferExchange] = InferExchange
    refusal: type[InferExchange] = RejectedExchange
    templates: HeadTemplates
    _trusted_host = b""
    _is_suspect = False

    def data_received(self, data: bytes) -> None:
        if self._stage or not data:
            super().data_received(data)
            return
        before: Any = self.cycle
        if before is None or before.response_complete:
            template = self.templates.find(data)
            if template is not None and not self.transport.is_closing():
                self._receive_known(template, data)
                return
        super().data_received(data)
        exchange: Any = self.cycle
        if exchange is not before and type(exchange) is self.exchange and not self._stage:
            self._learn(data, exchange)

    def _receive_known(self, template: HeadTemplate, data: bytes) -> None:
        """What the parser would call for, at once: nothing of this request goes through it."""
        self.idle_since = 0.0
        self.headers = template.headers
        self.expect_100_continue = False
        self._is_suspect = template.host != self._trusted_host
        self.template = template
        try:
            self._begin_exchange(template.infer)
        finally:
            self.template = None
        exchange: Any = self.cycle
        exchange.receive(data[template.bytes :])
        exchange.received()

    def _learn(self, data: bytes, exchange: InferExchange) -> None:
        if exchange.keep_alive and not self._is_suspect:
            self.templates.learn(data, exchange.infer, self.headers, exchange.size)

    def on_header(self, name: bytes, value: bytes) -> None:
        """uvicorn's, which also notes what only a browser, or an unknown host, brings.

        The Host of one connection is nearly always the same: it is looked up once.
        """
        name = name.lower()
        if name in _NOTED:
            if name == b"host":
                if value != self._trusted_host:
                    self._is_suspect = True
            elif name != b"expect":
                self._is_suspect = True
            elif value.lower() == b"100-continue":
                self.expect_100_continue = True
        self.headers.append((name, value))

    def on_message_begin(self) -> None:
        self._stage = 1
        self.url = b""
        self.expect_100_continue = self._is_suspect = False
        self.headers = []

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            self._take_host_of_target()
        target = _INFER.match(_path_in(self.url))
        if target and self.parser.get_method() == b"POST":
            self._stage = 2
            self._begin_exchange(target)
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _take_host_of_target(self) -> None:
        """The host of a target in absolute form stands above the Host header (RFC 9112, 3.2.2)."""
        host = authority_of(self.url)
        if host:
            self.headers = [header for header in self.headers if header[0] != b"host"]
            self.headers.append((b"host", host))
            self._is_suspect = True

    def _begin_exchange(self, target: re.Match[bytes]) -> None:
        before: Any = self.cycle
        if self.lock is None and not self.dataplane.authorizer.watches and not self._is_suspect:
            exchange = self.exchange(self, target)
        else:
            exchange = self._judged(target)
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            self._answering = exchange
            exchange.admitted()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _judged(self, target: re.Match[bytes]) -> InferExchange:
        principal, refusal = self._judge_site() or self._judge(target)
        exchange = (self.exchange if refusal is None else self.refusal)(self, target)
        exchange.refusal = refusal
        if self._is_suspect and self.sites.origins:
            exchange.cors = response_lines(self.sites, origin_in(self.headers))
        exchange.principal = principal
        return exchange

    def _judge_site(self) -> AuthorizationResult | None:
        """The refusal of what another site's page sends, or of a host that is not ours."""
        if not self._is_suspect:
            return None
        refusal = self.sites.refusal("POST", self.headers)
        if refusal is not None:
            return AuthorizationResult(refusal=refusal)
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) == 1:
            self._trusted_host = hosts[0]
        return None

    def _judge(self, target: re.Match[bytes]) -> AuthorizationResult:
        lock, dataplane = self.lock, self.dataplane
        if lock is not None and not lock.opens(text_headers(self.headers)):
            return AuthorizationResult(refusal=Restricted(http_text(lock)))
        if not dataplane.authorizer.watches:
            return AuthorizationResult()
        model, _ = model_and_version(target)
        return dataplane.judge(authorization_in(self.headers), Action.INFER, model)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if isinstance(cycle, InferExchange):
            self._answering = cycle
            cycle.admitted()
        else:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, InferExchange):
            if self._overfull is not None:
                self.check_chunks()
            cycle.receive(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, InferExchange):
            self._stage = 0
            cycle.received()
        else:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        cycles: list[Any] = [self._answering, self.cycle, *(cycle for cycle, _ in self.pipeline)]
        for cycle in cycles:
            if isinstance(cycle, InferExchange) and not cycle.response_complete:
                cycle.abandon()
        super().connection_lost(exc)

    def _received_bytes(self) -> int:
        cycle: Any = self.cycle
        return cycle.size if isinstance(cycle, InferExchange) else super()._received_bytes()


def _path_in(target: bytes) -> bytes:
    """Path and query of a request's target, which may also be a whole URL (RFC 9112, 3.2.2)."""
    if target.startswith(b"/") and b"#" not in target:
        return target
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return target
    return (url.path or b"") + (b"?" + url.query if url.query else b"")


class HeaderCaseProtocol(InferProtocol):
    """Also remembers how the client wrote the names of its headers, for those to be forwarded."""

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        spelt = CasePreservedName(name.lower())
        spelt.spelt = name
        self.headers[-1] = (spelt, value)
