"""Write an infer answer of REST like those before it: all but its numbers was rendered once.

The counterpart of `server.codec.body_templates`. `server.rest.infer` comes here; an answer with one
tensor of numbers, which nearly all are, costs a look-up and its numbers instead of a document that
is made and rendered.
"""

from typing import Any

import orjson

from repository.config.tensors import Array
from schedulers.request import InferResponse
from server.codec.json_data import json_data
from server.codec.json_infer import EncodedResponse, encode
from server.codec.octets import octets
from server.codec.output_format import OutputFormat

MAX_TEMPLATES = 256
_END = b"}]}"
_Key = tuple[str, int, str, Any, tuple[int, ...], bool]


class AnswerTemplates:
    """The JSON of answers lately, up to the numbers; forgotten together when they are too many."""

    def __init__(self) -> None:
        self._fronts: dict[_Key, bytes] = {}

    def encode(self, response: InferResponse, form: OutputFormat) -> EncodedResponse:
        """As `json_infer.encode`, and raises what it raises."""
        outputs = response.outputs
        if len(outputs) != 1 or response.parameters or form.tops or form.places:
            return encode(response, form)
        ((name, array),) = outputs.items()
        binary = form.binary is True or (form.binary is not False and name in form.binary)
        key = response.model, response.version, name, array.dtype, array.shape, binary
        front = self._fronts.get(key)
        if front is None:
            return self._learn(key, response, form)
        if response.id:
            front = b'{"id":%b,%b' % (orjson.dumps(response.id), front[1:])
        if binary:
            return EncodedResponse((front, octets(array)), len(front))
        numbers = _numbers(array)
        if b"null" in numbers:
            return encode(response, form)
        return EncodedResponse((front, numbers, _END), 0)

    def _learn(self, key: _Key, response: InferResponse, form: OutputFormat) -> EncodedResponse:
        ((_, array),) = response.outputs.items()
        if not array.dtype.hasobject and array.size:
            like = InferResponse("", response.model, response.version, response.outputs)
            front = encode(like, form).parts[0]
            if not key[-1]:
                end = _numbers(array) + _END
                front = front[: -len(end)] if bytes(front).endswith(end) else b""
            if front:
                if len(self._fronts) >= MAX_TEMPLATES:
                    self._fronts.clear()
                self._fronts[key] = bytes(front)
        return encode(response, form)


def _numbers(array: Array) -> bytes:
    return orjson.dumps(json_data(array), option=orjson.OPT_SERIALIZE_NUMPY)
