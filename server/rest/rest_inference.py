"""A request to REST's infer verb as the data plane sees it: tensors and parameters, read from a
body of JSON or of raw bytes.

`server.rest.infer` collects the body and writes the answer.
"""

from collections.abc import Mapping
from typing import Any

from schedulers.request import NO_PARAMETERS, Sequence
from server.access.sites import SitePolicy
from server.admit import sequence_in
from server.codec import json_infer
from server.codec.form import Form, InferBody
from server.codec.forwarding import Forwarding
from server.codec.raw_body import decode_raw
from server.dataplane import DataPlane
from server.errors import BuffersFull, ServingError, Unsupported
from server.logs.access import AccessLog
from server.rest.compression import BRIEF_BYTES
from server.rest.connection import Connection
from server.rest.endpoint import Limits
from server.rest.envelope import Envelope, check_json_length
from server.rest.http_inference import HttpInference
from server.served import Served
from server.settings.restricted import Lock
from server.signature import Signature

_ONE_RESPONSE_ONLY = "HTTP end point doesn't support models with decoupled transaction policy"


class RestConnection(Connection):
    """What an Exchange knows of its connection. `server.rest.protocol` makes the exchanges."""

    dataplane: DataPlane
    limits: Limits
    sites = SitePolicy()
    lock: Lock | None = None
    forwarding: Forwarding | None = None
    log: AccessLog | None = None


class RestInference(HttpInference):
    """`_body`: the whole of it, once it is there and until it is decoded. `answered_by`: the
    version, once it has taken the request; 0 before. `server.rest.infer.Exchange` sets them all:
    one constructor more cost 0.1 µs of each request."""

    __slots__ = (
        "_body",
        "_document",
        "_envelope",
        "_form",
        "_protocol",
        "answered_by",
        "request_id",
    )

    _body: bytes
    _document: json_infer.Document | None
    _envelope: Envelope
    _form: Form
    _protocol: RestConnection
    answered_by: int
    request_id: str

    def refused(self, error: Exception) -> None:
        """Its trace ends with its answer."""

    def decode(self, served: Served) -> InferBody:
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
        depth, shared = protocol.limits.json_depth, protocol.dataplane.shared_memory
        return json_infer.decode(body, length, signature, depth, shared, self._document)

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
                self._document = json_infer.parse(self._body, length, depth)
            return json_infer.parameters_in(self._document)
        except ServingError:
            return NO_PARAMETERS
