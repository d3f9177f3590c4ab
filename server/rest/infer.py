"""One REST infer request: no task, no ASGI message, no middleware.

`server.rest.protocol` calls in with the parsed request; an Exchange collects the body, hands itself
to `server.dataplane`, which has it decode the body, and is called back by the Reply to write the
answer. A client that hangs up cancels its request.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from schedulers.errors import Cancelled
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, Sequence
from server.access.sites import SitePolicy
from server.admit import sequence_in
from server.codec.declared_body import decode_declared, refuse_picture
from server.codec.forwarding import HeaderForwarding
from server.codec.infer_templates import AnswerTemplates, BodyTemplates
from server.codec.json_infer import Document, EncodedResponse, parameters_in, parse
from server.codec.output_format import PLAIN, InferBody
from server.codec.raw_body import decode_raw
from server.dataplane import DataPlane
from server.errors import BuffersFull, InvalidRequest, RequestTooLarge, ServingError, Unsupported
from server.http1.connection import Http1Connection
from server.logs.access import AccessLog
from server.request_ids import id_bytes
from server.rest.compression import (
    BRIEF_BYTES,
    CODINGS,
    LEAST_BYTES,
    UnsupportedCoding,
    deflate,
    elsewhere,
    inflate,
    inflate_brief,
)
from server.rest.endpoint import BodyLimits
from server.rest.envelope import PLAIN_ENVELOPE, body_bytes, check_json_length, read_envelope
from server.rest.errors import error_body, headers_of, visible
from server.rest.head_templates import HeadTemplate, model_and_version
from server.rest.http_inference import HttpInference
from server.served_version import ServedVersion
from server.settings.restricted import RequiredHeader
from server.signature import Signature

_ACCEPTED = b"Accept-Encoding: %s\r\n" % CODINGS.encode()
_JSON_HEAD = b"Content-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %b\r\n"
_BINARY_HEAD = (
    b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
    b"Content-Length: %d\r\nX-Request-Id: %b\r\n"
)
_GIVE_UP_FACTOR = 16
"""A body this many times over the limit is no longer read to its end: the connection closes."""

_ONE_RESPONSE_ONLY = "HTTP end point doesn't support models with decoupled transaction policy"


class RestConnection(Http1Connection):
    """What an Exchange knows of its connection. `server.rest.protocol` makes the exchanges."""

    dataplane: DataPlane
    limits: BodyLimits
    sites = SitePolicy()
    lock: RequiredHeader | None = None
    template: HeadTemplate | None = None
    """Of the request that begins, where its head is known."""
    bodies: BodyTemplates
    answers: AnswerTemplates
    forwarding: HeaderForwarding | None = None
    log: AccessLog | None = None


class _NoEvent:
    """Stands where uvicorn's cycles have an asyncio.Event; nobody waits on an Exchange."""

    def set(self) -> None: ...


class InferExchange(HttpInference):
    """One infer request and its response on one connection. `_body`: the whole of it, once it is
    there and until it is decoded. `answered_by`: the version, once it has taken the request; 0
    before."""

    __slots__ = (
        "_admitted",
        "_body",
        "_chunks",
        "_document",
        "_envelope",
        "_form",
        "_protocol",
        "_reply",
        "_template",
        "answered_by",
        "cors",
        "disconnected",
        "infer",
        "keep_alive",
        "more_body",
        "refusal",
        "request_id",
        "response_complete",
        "size",
    )
    message_event = _NoEvent()

    def __init__(self, protocol: RestConnection, target: re.Match[bytes]) -> None:
        template = protocol.template
        model, version = model_and_version(target) if template is None else template.model
        super().__init__(model, version, protocol.forwarding)
        self.headers = protocol.headers
        self.began_ns = time.monotonic_ns() if protocol.dataplane.tracing.on else 0
        self._protocol = protocol
        self.infer = target
        self._body = b""
        self._document: Document | None = None
        self._chunks: list[bytes] = []
        self.size = 0
        self._admitted = False
        self._reply: Reply | None = None
        self._envelope = PLAIN_ENVELOPE
        self._template = template
        self._form = PLAIN
        self.refusal: Exception | None = None
        """Why a request that is turned away is."""
        self.cors = b""
        """Lines of the answer's head for a page that may read it."""
        self.request_id = ""
        self.answered_by = 0
        self.keep_alive = template is not None or protocol.parser.should_keep_alive()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False

    # the request comes in

    def admitted(self) -> None:
        """Earlier requests of the connection are answered; it is this one's turn."""
        self._admitted = True
        if not self.more_body:
            self._start()
        elif self._protocol.expect_100_continue:
            self._ask_for_body()

    def _ask_for_body(self) -> None:
        """Nothing of one that is too long is read: its client waits for leave to send it."""
        announced = body_bytes(self.headers)
        if announced <= self._protocol.limits.body_bytes:
            self._protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self.size, self.keep_alive, self.more_body = announced, False, False
        self._start()

    def receive(self, chunk: bytes) -> None:
        self.size += len(chunk)
        limit = self._protocol.limits.body_bytes
        if self.size <= limit:
            self._chunks.append(chunk)
        elif self.size > limit * _GIVE_UP_FACTOR:
            self.keep_alive = False
            self.received()
        else:
            self._chunks.clear()  # read on, so that the client gets to read why

    def received(self) -> None:
        if self.more_body:
            self.more_body = False
            if self._admitted:
                self._start()

    def abandon(self) -> None:
        """The client has gone."""
        self.disconnected = True
        self.response_complete = True
        self._form = PLAIN
        if self._reply is not None:
            self._reply.cancel()
        if self.trace is not None:
            self.trace.failed(Cancelled("the client has disconnected"))
            self.trace.end()

    def _start(self) -> None:
        arrived_ns = time.monotonic_ns()
        limit = self._protocol.limits.body_bytes
        try:
            if not 0 < self.size <= limit:
                self._check_size(limit)
            known = self._template
            self._envelope = read_envelope(self.headers) if known is None else known.envelope
        except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
            self._refuse(error)
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if self._envelope.coding:
            self._inflate(body, arrived_ns)
        else:
            self._submit(body, arrived_ns)

    def _check_size(self, limit: int) -> None:
        if self.size > limit:
            raise RequestTooLarge(
                f"Request body size of {self.size} bytes exceeds the maximum allowed value of "
                f"{limit} bytes. Use --http-max-input-size to increase the limit."
            )
        if self._protocol.parser.should_upgrade():  # httptools stops at the head of such a request
            raise InvalidRequest(
                "this server does not upgrade connections; send the request without an Upgrade "
                "header"
            )

    def _inflate(self, body: bytes, arrived_ns: int) -> None:
        coding, limit = self._envelope.coding, self._protocol.limits.body_bytes
        try:
            brief = inflate_brief(body, coding, limit)
        except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
            self._refuse(error)
            return
        if brief is not None:
            self._submit(brief, arrived_ns)
            return
        self._then(
            lambda: inflate(body, coding, limit), lambda whole: self._inflated(whole, arrived_ns)
        )

    def _inflated(self, body: bytes, arrived_ns: int) -> None:
        """It counts as large as it is now."""
        if refusal := self._protocol.charge(len(body)):
            self._refuse(BuffersFull(refusal))
        else:
            self._submit(body, arrived_ns)

    def _then(self, work: Callable[[], bytes], go_on: Callable[[bytes], None]) -> None:
        """`go_on(work())`, the work on a thread; nothing when the client has gone meanwhile."""
        done = elsewhere(work)

        def back(done: Any) -> None:
            if self.disconnected or done.cancelled():
                return
            error = done.exception()
            if error is None:
                go_on(done.result())
            else:
                self._refuse(error)

        done.add_done_callback(back)

    def _submit(self, body: bytes, arrived_ns: int) -> None:
        self.arrived(arrived_ns, self._envelope)
        self._body = body
        try:
            self._reply = self._protocol.dataplane.infer(self)
        except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
            self._refuse(error)
        else:
            self._reply.then(self._finish)
        finally:
            self._body, self._document = b"", None

    # what the data plane asks of it

    def decode(self, served: ServedVersion) -> InferBody:
        signature = served.signature
        if signature.decoupled:
            raise Unsupported(_ONE_RESPONSE_ONLY)
        found = self._decode(signature)
        if len(self._body) > BRIEF_BYTES:
            self._charge_arrays(found, len(self._body))
        self._form, self.request_id, self.answered_by = found.form, found.id, signature.version
        return found

    def _charge_arrays(self, found: InferBody, size: int) -> None:
        """Numbers of two letters become arrays of up to four times their text: count what is more.

        Raises BuffersFull.
        """
        grown = sum(array.nbytes for array in found.inputs.values()) - size
        if grown > 0 and (refusal := self._protocol.charge(grown)):
            raise BuffersFull(refusal)

    def _decode(self, signature: Signature) -> InferBody:
        body, length, protocol = self._body, self._envelope.json_length, self._protocol
        if length == 0:
            return decode_raw(body, signature)
        if length is not None:
            check_json_length(length, len(body))
        if signature.bodies and length is None:
            whole = decode_declared(self.headers, body, signature)
            if whole is not None:
                return whole
        depth, shared = protocol.limits.json_depth, protocol.dataplane.shared_memory
        try:
            return protocol.bodies.decode(body, length, signature, depth, shared, self._document)
        except InvalidRequest:
            refuse_picture(self.headers, signature)
            raise

    def parameter(self, name: str) -> object:
        return self._parameters().get(name)

    def sequence(self) -> Sequence | None:
        return sequence_in(self._parameters())

    def _parameters(self) -> Mapping[str, Any]:
        """None where the body has none, or cannot be read; `decode` says then why it cannot."""
        length = self._envelope.json_length
        if length == 0:
            return NO_PARAMETERS
        try:
            if self._document is None:
                depth = self._protocol.limits.json_depth
                self._document = parse(self._body, length, depth)
            return parameters_in(self._document)
        except ServingError:
            return NO_PARAMETERS

    def refused(self, error: Exception) -> None:
        """Its trace ends with its answer."""

    # the answer goes out

    def _finish(self, reply: Reply) -> None:
        if self.disconnected:
            return
        try:
            response = reply.result()
            if self.trace is not None:
                self.trace.answered(response)
            encoded = self._protocol.answers.encode(response, self._form)
        except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
            self._refuse(error)
        else:
            coding = self._envelope.answer_coding
            if coding and sum(map(len, encoded.parts)) >= LEAST_BYTES:
                self._deflate(encoded)
            else:
                self._write(200, encoded)

    def _deflate(self, encoded: EncodedResponse) -> None:
        coding = self._envelope.answer_coding
        whole = b"".join(encoded.parts)
        more = b"Content-Encoding: %s\r\nVary: Accept-Encoding\r\n" % coding.encode()

        def write(body: bytes) -> None:
            self._write(200, EncodedResponse((body,), encoded.header_length), more)

        if len(whole) <= BRIEF_BYTES:
            write(deflate(whole, coding))
        else:
            self._then(lambda: deflate(whole, coding), write)

    def _refuse(self, error: Exception) -> None:
        if self.trace is not None:
            self.trace.failed(error)
        status, text = visible(error, f"request '{self.request_id}' to model '{self.model}'")
        more = _ACCEPTED if isinstance(error, UnsupportedCoding) else b""
        more += b"".join(b"%s: %s\r\n" % header for header in headers_of(error))
        self._write(status, EncodedResponse((error_body(text),), 0), more)

    def _write(self, status: int, encoded: EncodedResponse, more: bytes = b"") -> None:
        """Write the answer; `more` are further lines of its head."""
        parts = encoded.parts
        length = sum(map(len, parts))
        if encoded.header_length:
            head = _BINARY_HEAD % (encoded.header_length, length, self._request_id())
        else:
            head = _JSON_HEAD % (length, self._request_id())
        if self.target is not None:
            more += self.target.line
        if self.cors:
            more += self.cors
        if not self.keep_alive:
            more += b"Connection: close\r\n"
        if self.trace is not None:
            self.trace.sending()
        if self._protocol.charged:
            self._protocol.release_bodies()
        transport = self._protocol.transport
        transport.write(b"".join((STATUS_LINE[status], head, more, b"\r\n", *parts)))
        if self.trace is not None:
            self.trace.sent()
            self.trace.end()
            self.trace = None
        self.response_complete = True
        self._reply = None
        self._form = PLAIN  # lets go of shared memory
        if not self.keep_alive:
            transport.close()
        self._protocol.on_response_complete()

    def _request_id(self) -> bytes:
        """The client's id, if it gave one in a header."""
        client_id = self._envelope.client_id
        return client_id.encode() if client_id else id_bytes(self.number)
