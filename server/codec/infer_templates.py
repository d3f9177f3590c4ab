"""Know infer bodies and answers of REST again: clients send the same ones over and over, but for
the numbers.

`server.rest.infer` comes here; `server.codec.json_infer` reads and writes what is not known. What
the parser and the checks once said of a binary body's JSON header, or of the text around a JSON
body's numbers, holds for every body with the same bytes there, so a known one costs a look-up and
numbers. What was once rendered around an answer's numbers is written again likewise.
"""

from typing import Any, NamedTuple

import numpy as np
import orjson

from repository.config.tensors import Array
from schedulers.request import InferResponse
from server.codec.json_data import array_from, json_data
from server.codec.json_infer import Document, EncodedResponse, decode, encode
from server.codec.json_large import LARGE_BYTES
from server.codec.json_text import dump
from server.codec.octets import octets
from server.codec.output_format import InferBody, OutputFormat
from server.errors import ServingError
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.signature import Signature, TensorSpec

MAX_TEMPLATES = 256
MAX_HEAD_BYTES = 1024
MAX_ONCE_SEEN = 4096
_KEY = b'"data"'
_MARKER = "the numbers of the only input"
_END = b"}]}"
_AnswerKey = tuple[str, int, str, Any, tuple[int, ...], bool]


class BinaryTemplate(NamedTuple):
    """A JSON header. `inputs`: name, type, shape, elements and offset of each; `size`: of the body;
    `like`: a body that had it, without inputs."""

    signature: Signature
    inputs: tuple[tuple[str, np.dtype[Any], tuple[int, ...], int, int], ...]
    size: int
    like: InferBody

    def read(self, body: bytes) -> InferBody:
        if len(self.inputs) == 1:
            ((name, dtype, shape, count, offset),) = self.inputs
            inputs = {name: np.frombuffer(body, dtype, count, offset).reshape(shape)}
        else:
            inputs = {
                name: np.frombuffer(body, dtype, count, offset).reshape(shape)
                for name, dtype, shape, count, offset in self.inputs
            }
        return _filled(self.like, inputs)


class TextTemplate(NamedTuple):
    """A JSON body but for the numbers of its one input. `like`: one like it, without inputs."""

    signature: Signature
    spec: TensorSpec
    shape: tuple[int, ...]
    like: InferBody

    def read(self, numbers: bytes) -> InferBody:
        """Raises JSONDecodeError, and what `array_from` raises."""
        array = array_from(orjson.loads(numbers), self.spec, self.shape)
        return _filled(self.like, {self.spec.name: array})


class BodyTemplates:
    """The bodies that came more than once lately, forgotten together when they are too many. One
    listener's connections share them."""

    def __init__(self) -> None:
        self._binary: dict[tuple[int, bytes], BinaryTemplate] = {}
        self._text: dict[tuple[int, bytes, bytes], TextTemplate] = {}
        self._once_seen: set[int] = set()

    def decode(
        self,
        body: bytes,
        header_length: int | None,
        signature: Signature,
        max_depth: int,
        shared: SharedMemory = DISALLOWED,
        document: Document | None = None,
    ) -> InferBody:
        """As `json_infer.decode`, and raises what it raises."""
        known = self._find(body, header_length, signature)
        if known is None:
            known = decode(body, header_length, signature, max_depth, shared, document)
            self._learn(body, header_length, signature, known)
        return known

    def _find(
        self, body: bytes, header_length: int | None, signature: Signature
    ) -> InferBody | None:
        """None also where the body is to be refused."""
        if header_length is None:
            return self._find_text(body, signature) if self._text else None
        if header_length > MAX_HEAD_BYTES:
            return None
        known = self._binary.get((id(signature), body[:header_length]))
        return None if known is None or known.size != len(body) else known.read(body)

    def _find_text(self, body: bytes, signature: Signature) -> InferBody | None:
        start, end = _numbers_in(body)
        if not end:
            return None
        known = self._text.get((id(signature), body[:start], body[end:]))
        if known is None:
            return None
        try:
            return known.read(body[start:end])
        except (orjson.JSONDecodeError, ServingError):
            return None

    def _learn(
        self, body: bytes, header_length: int | None, signature: Signature, found: InferBody
    ) -> None:
        """Remember a body that was admitted as `found`, where it may stand for others; from the
        second time on. Not with an id, nor with tensors in shared memory or of strings."""
        if found.id or found.form.places:
            return
        if any(array.dtype.hasobject or not array.size for array in found.inputs.values()):
            return
        if header_length is None:
            self._learn_text(body, signature, found)
        elif header_length <= MAX_HEAD_BYTES:
            self._learn_binary(body, header_length, signature, found)

    def _learn_binary(
        self, body: bytes, header_length: int, signature: Signature, found: InferBody
    ) -> None:
        key = id(signature), body[:header_length]
        inputs, offset = [], header_length
        for name, array in found.inputs.items():
            inputs.append((name, array.dtype, array.shape, array.size, offset))
            offset += array.nbytes
        if offset == len(body) and self._is_seen_again(key):  # so no input was in the header
            self._make_room()
            like = _emptied(found)
            self._binary[key] = BinaryTemplate(signature, tuple(inputs), len(body), like)

    def _learn_text(self, body: bytes, signature: Signature, found: InferBody) -> None:
        start, end = _numbers_in(body)
        around = start + len(body) - end
        if not end or around > MAX_HEAD_BYTES or len(found.inputs) != 1:
            return
        key = id(signature), body[:start], body[end:]
        if not self._is_seen_again(key) or not _stands_alone(body[:start], body[end:]):
            return
        ((name, array),) = found.inputs.items()
        self._make_room()
        spec = signature.inputs[name]
        self._text[key] = TextTemplate(signature, spec, array.shape, _emptied(found))

    def _is_seen_again(self, key: object) -> bool:
        seen = hash(key)
        if seen in self._once_seen:
            return True
        if len(self._once_seen) >= MAX_ONCE_SEEN:
            self._once_seen.clear()
        self._once_seen.add(seen)
        return False

    def _make_room(self) -> None:
        if len(self._binary) + len(self._text) >= MAX_TEMPLATES:
            self._binary.clear()
            self._text.clear()


class AnswerTemplates:
    """The JSON of answers lately, up to the numbers, forgotten together when they are too many. An
    answer with one tensor of numbers, which nearly all are, costs a look-up and its numbers."""

    def __init__(self) -> None:
        self._fronts: dict[_AnswerKey, bytes] = {}

    def encode(self, response: InferResponse, form: OutputFormat) -> EncodedResponse:
        """As `json_infer.encode`, and raises what it raises."""
        outputs = response.outputs
        if len(outputs) != 1 or response.parameters or form.tops or form.places:
            return encode(response, form)
        ((name, array),) = outputs.items()
        binary = form.binary is True or (form.binary is not False and name in form.binary)
        if not binary and array.nbytes > LARGE_BYTES:
            return encode(response, form)
        key = response.model, response.version, name, array.dtype, array.shape, binary
        front = self._fronts.get(key)
        if front is None:
            return self._learn(key, response, form)
        if response.id:
            front = b"%b,%b" % (_id_front(response), front[1:])
        if binary:
            return EncodedResponse((front, octets(array)), len(front))
        return EncodedResponse((front, _numbers(array), _END), 0)

    def _learn(
        self, key: _AnswerKey, response: InferResponse, form: OutputFormat
    ) -> EncodedResponse:
        """Write it, and remember what is in front of its numbers."""
        encoded = encode(response, form)
        ((_, array),) = response.outputs.items()
        if array.dtype.hasobject or not array.size:
            return encoded
        front = bytes(encoded.parts[0])
        if not key[-1]:
            front = front[: front.rfind(b"[")]
        if response.id:
            front = b"{" + front[len(_id_front(response)) + 1 :]
        if len(front) <= MAX_HEAD_BYTES:
            if len(self._fronts) >= MAX_TEMPLATES:
                self._fronts.clear()
            self._fronts[key] = front
        return encoded


def _id_front(response: InferResponse) -> bytes:
    """With which an answer with an id begins."""
    return b'{"id":%b' % orjson.dumps(response.id)


def _filled(like: InferBody, inputs: dict[str, Array]) -> InferBody:
    _, _, rows, key, outputs, parameters, form = like
    return InferBody("", inputs, rows, key, outputs, parameters, form)


def _emptied(found: InferBody) -> InferBody:
    """Without its inputs, which keep the body, and without the parameter that its form says."""
    parameters = {k: v for k, v in found.parameters.items() if k != "binary_data_output"}
    return found._replace(inputs={}, parameters=parameters)


def _numbers_in(body: bytes) -> tuple[int, int]:
    """Where the flat list behind the first key "data" begins and ends, if it is one; (0, 0) where
    there is none, or the body is large."""
    at = body.find(_KEY) if len(body) < LARGE_BYTES else -1
    start = body.find(b"[", at + len(_KEY)) if at >= 0 else -1
    end = body.find(b"]", start) if start >= 0 else -1
    return (start, end + 1) if end >= 0 else (0, 0)


def _stands_alone(before: bytes, behind: bytes) -> bool:
    """Whether any value may stand between the two texts, and is the data of the only input then."""
    try:
        document = orjson.loads(b'%b"%b"%b' % (before, _MARKER.encode(), behind))
    except orjson.JSONDecodeError:
        return False
    entries = document["inputs"] if type(document) is dict else []
    return len(entries) == 1 and entries[0].get("data") == _MARKER


def _numbers(array: Array) -> bytes:
    return dump(json_data(array))
