"""Write a response like those before it: all but the tensor's bytes was serialised once.

The counterpart of `server.grpc.request_template_cache`. `server.grpc.unary` comes here; a response
with one tensor of numbers, which nearly all are, costs a look-up and a copy of its bytes instead
of a protobuf message that is filled and serialised.
"""

from typing import NamedTuple

from tritonclient.grpc import service_pb2 as pb

from repository.config.tensors import Array
from schedulers.request import InferResponse
from server.codec.octets import octets
from server.codec.output_format import PLAIN, OutputFormat
from server.grpc.request_template_cache import varint
from server.signature import Signature

MAX_TEMPLATES = 256
MAX_ID_BYTES = 127
"""Of an id whose length protobuf writes as one byte."""
_SMALL_BYTES = 64 * 1024
_ID_TAG = b"\x1a"
_RAW_TAG = b"\x32"
"""Fields 3 and 6 of ModelInferResponse, length-delimited: `id`, and `raw_output_contents`, which
is written last."""


class ResponseTemplate(NamedTuple):
    """`front`: what stands before the id, `back`: between it and the tensor's bytes, of which
    there are `nbytes`. `plain` is both, for a response without an id."""

    signature: Signature
    front: bytes
    back: bytes
    plain: bytes
    nbytes: int


class ResponseTemplateCache:
    """The shapes of responses lately; forgotten together when they are too many."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, str, tuple[int, ...]], ResponseTemplate] = {}

    def find(self, response: InferResponse, signature: Signature, form: OutputFormat) -> bytes:
        """The bytes of `server.codec.grpc_infer.encode(response, signature, form)`; none where no
        response like it was learnt."""
        outputs = response.outputs
        if form is not PLAIN or len(outputs) != 1 or response.parameters:
            return b""
        ((name, array),) = outputs.items()
        template = self._templates.get((id(signature), name, array.shape))
        if template is None or template.nbytes != array.nbytes or array.dtype.hasobject:
            return b""
        said = response.id
        head = template.plain if not said else _with_id(template, said.encode())
        return _joined(head, array) if head else b""

    def learn(self, response: InferResponse, signature: Signature, form: OutputFormat) -> None:
        """Remember what responses like this one have in common, where it may stand for others."""
        outputs = response.outputs
        if form is not PLAIN or len(outputs) != 1 or response.parameters:
            return
        ((name, array),) = outputs.items()
        if array.dtype.hasobject:
            return
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        front = pb.ModelInferResponse(
            model_name=signature.model, model_version=str(signature.version)
        )
        back = pb.ModelInferResponse()
        back.outputs.add(name=name, datatype=signature.outputs[name].datatype, shape=array.shape)
        before = front.SerializeToString()
        behind = back.SerializeToString() + _RAW_TAG + varint(array.nbytes)
        self._templates[id(signature), name, array.shape] = ResponseTemplate(
            signature, before, behind, before + behind, array.nbytes
        )


def _with_id(template: ResponseTemplate, said: bytes) -> bytes:
    """Nothing where the id is too long."""
    if len(said) > MAX_ID_BYTES:
        return b""
    return b"%b%b%c%b%b" % (template.front, _ID_TAG, len(said), said, template.back)


def _joined(head: bytes, array: Array) -> bytes:
    """A small tensor is faster copied twice than looked at as a buffer."""
    if array.nbytes <= _SMALL_BYTES or not array.flags.c_contiguous:
        return head + array.tobytes()
    return b"".join((head, octets(array)))
