"""ModelInfer: one message in, one out, answered from the Reply's callback without a task.

Opened by `server.grpc.service`; a client that goes away cancels its request.
"""

import time

from tritonclient.grpc import service_pb2 as pb

from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.codec.forwarding import HeaderForwarding
from server.codec.grpc_infer import decode, encode, sequence_of
from server.codec.output_format import PLAIN, InferBody, OutputFormat
from server.dataplane import DataPlane
from server.errors import Unsupported
from server.grpc.admission import holder_of
from server.grpc.calls import parse, refuse
from server.grpc.grpc_inference import GrpcInference, name_arm
from server.grpc.middleware import note
from server.grpc.request_template_cache import RequestTemplate, RequestTemplateCache
from server.grpc.response_template_cache import ResponseTemplateCache
from server.http2.calls.service import UnaryCall
from server.served_version import ServedVersion
from server.signature import Signature
from server.trace.record import following


class UnaryInfer:
    """The method, with what its messages and its answers have in common."""

    def __init__(self, dataplane: DataPlane, forwarding: HeaderForwarding | None) -> None:
        self._dataplane = dataplane
        self._forwarding = forwarding
        self._heads = RequestTemplateCache()
        self._answers = ResponseTemplateCache()

    def __call__(self, data: bytes, call: UnaryCall) -> None:
        inference = _UnaryInference(
            self._dataplane, data, call, self._heads, self._answers, self._forwarding
        )
        try:
            inference.read()
            reply = self._dataplane.infer(inference)
        except Exception as error:  # noqa: BLE001 - the boundary: refuse() logs what is our fault
            inference.refuse(error)
        else:
            inference.message = None
            if inference.target is not None:
                name_arm(call, inference.target)
            call.on_cancel = reply.cancel
            reply.then(inference.answer)


class _UnaryInference(GrpcInference):
    """One call's request, and how its answer is to be written."""

    __slots__ = (
        "_answers",
        "_data",
        "_dataplane",
        "_form",
        "_head",
        "_heads",
        "_id",
        "_signature",
    )
    call: UnaryCall
    _signature: Signature

    def __init__(
        self,
        dataplane: DataPlane,
        data: bytes,
        call: UnaryCall,
        heads: RequestTemplateCache,
        answers: ResponseTemplateCache,
        forwarding: HeaderForwarding | None,
    ) -> None:
        super().__init__("", "", forwarding, time.monotonic_ns(), call.deadline_ns, call.number)
        self.client_id = call.head.client_id
        self.call = call
        self.message = None
        if call.admission is not None:
            self.held_by(holder_of(call))
        self._dataplane = dataplane
        self._data = data
        self._heads = heads
        self._answers = answers
        self._form: OutputFormat = PLAIN
        self._id = ""
        self._head: RequestTemplate | None = None

    def read(self) -> None:
        """Whom it asks. Raises InvalidRequest."""
        head = self._head = self._heads.find(self._data)
        if head is not None:
            self.model, self.version = head.model, head.version
            return
        message = self.message = parse(pb.ModelInferRequest, self._data)
        self.model, self.version = message.model_name, message.model_version

    def decode(self, served: ServedVersion) -> InferBody:
        self._signature = signature = served.signature
        head = None if self._head is None else self._head.of(signature)
        body = self._parsed(signature) if head is None else head.body(self._data)
        self._data = b""  # it must not wait beside its copy
        if self.message is not None and sequence_of(self.message) is None:
            self.message = None
        self._form, self._id = body.form, body.id
        if self.call.logged:
            note(self.call, body.id, signature, self.arm)
        return body

    def refuse(self, error: Exception) -> None:
        """Answer that the data plane did not take it."""
        if self.target is not None:
            name_arm(self.call, self.target)
        refuse(self.call, error, self.call.head.path)

    def answer(self, reply: Reply) -> None:
        """Answer with how it ended."""
        if self.trace is None:
            self._answer(reply)
            return
        with following(self.trace):
            try:
                self.trace.answered(reply.result())
            except Exception as error:  # noqa: BLE001 - whatever it is, `_answer` answers it
                self.trace.failed(error)
            self.trace.sending()
            self._answer(reply)
            self.trace.sent()

    def _answer(self, reply: Reply) -> None:
        call = self.call
        if call.over:
            return
        try:
            message = self._serialised(reply.result())
        except Exception as error:  # noqa: BLE001 - the boundary: refuse() logs what is our fault
            refuse(call, error, f"request '{self._id}' to model '{self._signature.model}'")
        else:
            call.finish(message)

    def _serialised(self, response: InferResponse) -> bytes:
        signature, form = self._signature, self._form
        message = self._answers.find(response, signature, form)
        if not message:
            message = encode(response, signature, form).SerializeToString()
            self._answers.learn(response, signature, form)
        return message

    def _parsed(self, signature: Signature) -> InferBody:
        if signature.decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        message, data = self.message, self._data
        if message is None:
            message = self.message = parse(pb.ModelInferRequest, data)
        body = decode(message, signature, self._dataplane.shared_memory)
        if body.form is PLAIN:
            self._heads.learn(data, message, body, signature)
        return body
