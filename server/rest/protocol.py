"""A connection of the REST door: the infer verb is answered on the spot, all else by ASGI.

httptools calls in with the parsed request. A POST to an infer path becomes an Exchange
(`server.rest.infer`), every other request goes on to the application.
"""

import re
from typing import Any

import httptools

from control.access.scopes import Action
from server.access.credentials import authorization_in
from server.access.gate import public_name
from server.access.holder import Verdict
from server.errors import Restricted
from server.rest.envelope import SpeltName, text_headers
from server.rest.infer import Exchange, RestConnection, TurnedAway, model_and_version
from server.settings.restricted import http_text

_INFER = re.compile(rb"/v2/models/([^/?]+)(?:/versions/([0-9]+))?/infer(?:\?.*)?\Z")


class InferProtocol(RestConnection):
    """A connection of the REST door, with the infer verb answered on the spot.

    An Exchange stands where uvicorn has a RequestResponseCycle. `exchange` is the class of those
    that are answered, `refusal` of those whom the lock or the gate turns away.
    """

    exchange: type[Exchange] = Exchange
    refusal: type[Exchange] = TurnedAway

    def on_message_begin(self) -> None:
        self._stage = 1
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        asked = _INFER.match(_path_in(self.url))
        if asked and self.parser.get_method() == b"POST":
            self._stage = 2
            self._begin_exchange(asked)
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _begin_exchange(self, asked: re.Match[bytes]) -> None:
        before: Any = self.cycle
        if self.lock is None and not self.dataplane.gate.watches:
            exchange = self.exchange(self, asked)
        else:
            exchange = self._judged(asked)
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            exchange.admitted()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _judged(self, asked: re.Match[bytes]) -> Exchange:
        principal, refusal = self._judge(asked)
        exchange = (self.exchange if refusal is None else self.refusal)(self, asked)
        exchange.refusal = refusal
        exchange.principal = principal.id if principal is not None else None
        return exchange

    def _judge(self, asked: re.Match[bytes]) -> Verdict:
        lock, dataplane = self.lock, self.dataplane
        if lock is not None and not lock.opens(text_headers(self.headers)):
            return Verdict(refusal=Restricted(http_text(lock)))
        if not dataplane.gate.watches:
            return Verdict()
        model, _ = model_and_version(asked)
        name = public_name(model, dataplane.aliases)
        return dataplane.gate.judge(authorization_in(self.headers), Action.INFER, name)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if isinstance(cycle, Exchange):
            cycle.admitted()
        else:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            cycle.receive(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            self._stage = 0
            cycle.received()
        else:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        cycles: list[Any] = [self.cycle, *(cycle for cycle, _ in self.pipeline)]
        for cycle in cycles:
            if isinstance(cycle, Exchange):
                cycle.abandon()
        super().connection_lost(exc)

    def _received_bytes(self) -> int:
        cycle: Any = self.cycle
        return cycle.size if isinstance(cycle, Exchange) else super()._received_bytes()


def _path_in(target: bytes) -> bytes:
    """Path and query of a request's target, which may also be a whole URL (RFC 9112, 3.2.2)."""
    if target.startswith(b"/") and b"#" not in target:
        return target
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return target
    return (url.path or b"") + (b"?" + url.query if url.query else b"")


class SpellingProtocol(InferProtocol):
    """Also remembers how the client wrote the names of its headers, for those to be forwarded."""

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        spelt = SpeltName(name.lower())
        spelt.spelt = name
        self.headers[-1] = (spelt, value)
