"""Mutated protobuf: valid ModelInferRequests in, nearly valid bytes out. Pure, but for the dice.

Besides bits and ends, fields are deleted, doubled, swapped and changed where they stand, at any
depth, so that many cases still parse and the damage reaches what comes behind the parser.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tritonclient.grpc import service_pb2 as pb

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
EXTREMES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NOT_UTF_8 = b"\xff\xfe\xc3\x28\xed\xa0\x80"


class Field(NamedTuple):
    """One field as it lies on the wire; `value` is its varint, or its bytes without length."""

    number: int
    kind: int
    value: int | bytes


def seeds() -> list[bytes]:
    """Valid requests for the models of `support.rest_cases.write_models`, of many shapes."""
    floats = np.arange(4, dtype=np.float32).reshape(1, 4).tobytes()
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4]}
    typed = {"fp32_contents": [1.5] * 4}
    words = {"name": "BYTES", "datatype": "BYTES", "shape": [2]}
    requests: list[dict[str, Any]] = [
        {"inputs": [tensor], "raw_input_contents": [floats]},
        {"inputs": [{**tensor, "contents": typed}], "model_version": "2", "id": "seven"},
        {"inputs": [tensor], "raw_input_contents": [floats], "outputs": wanted("OUTPUT0")},
        {"inputs": [tensor], "raw_input_contents": [floats], "parameters": meant()},
        {"inputs": [{**tensor, "parameters": elsewhere()}]},
        {"inputs": [{**words, "contents": {"bytes_contents": [b"a", b"bc"]}}]},
        {"inputs": [words], "raw_input_contents": [b"\1\0\0\0a\2\0\0\0bc"]},
        {"inputs": numbers()},
        {"inputs": [{**tensor, "shape": [0, 1, 1]}], "raw_input_contents": [b""]},
    ]
    return [
        pb.ModelInferRequest(model_name=model_of(one["inputs"][0]), **one).SerializeToString()
        for one in requests
    ]


def model_of(tensor: dict[str, Any]) -> str:
    if tensor["name"] != "INPUT0":
        return "kinds"
    return "wide" if len(tensor["shape"]) == 3 else "echo"


def wanted(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "parameters": {"classification": whole(2)}}]


def meant() -> dict[str, pb.InferParameter]:
    """Parameters that mean something to the server, and one that does not."""
    yes = pb.InferParameter(bool_param=True)
    return {
        "sequence_id": whole(42),
        "sequence_start": yes,
        "priority": whole(1),
        "timeout": whole(10_000_000),
        "triton_enable_empty_final_response": yes,
        "temperature": pb.InferParameter(double_param=0.5),
    }


def elsewhere() -> dict[str, pb.InferParameter]:
    """A place in shared memory; nobody registers that region."""
    named = {"shared_memory_region": pb.InferParameter(string_param="region")}
    return {**named, "shared_memory_byte_size": whole(16), "shared_memory_offset": whole(0)}


def whole(value: int) -> pb.InferParameter:
    return pb.InferParameter(int64_param=value)


def numbers() -> list[dict[str, Any]]:
    """One typed input for each kind of contents that numbers have."""
    fields = {
        **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
        **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
        "INT64": "int64_contents",
        "UINT64": "uint64_contents",
        "FP64": "fp64_contents",
        "BOOL": "bool_contents",
    }
    return [
        {"name": kind, "datatype": kind, "shape": [2], "contents": {field: [1, 0]}}
        for kind, field in fields.items()
    ]


def mutated(dice: random.Random, sent: bytes) -> bytes:
    """`sent` after one to three mutations."""
    for _ in range(dice.randrange(1, 4)):
        sent = dice.choice(MUTATIONS)(dice, sent) if sent else sent
    return sent


def flip(dice: random.Random, sent: bytes) -> bytes:
    changed = bytearray(sent)
    for _ in range(dice.randrange(1, 9)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(dice: random.Random, sent: bytes) -> bytes:
    return sent[: dice.randrange(len(sent))]


def insert(dice: random.Random, sent: bytes) -> bytes:
    place = dice.randrange(len(sent) + 1)
    return sent[:place] + dice.randbytes(dice.randrange(1, 12)) + sent[place:]


def rearrange(dice: random.Random, sent: bytes) -> bytes:
    """Delete, double or move a field, or change one, here or inside one."""
    fields = fields_of(sent)
    if not fields:
        return flip(dice, sent)
    place = dice.randrange(len(fields))
    match dice.randrange(6):
        case 0:
            del fields[place]
        case 1:
            fields.insert(dice.randrange(len(fields) + 1), fields[place])
        case 2:
            dice.shuffle(fields)
        case _:
            written = [write(one) for one in fields]
            written[place] = change(dice, fields[place])
            return b"".join(written)
    return b"".join(map(write, fields))


def change(dice: random.Random, field: Field) -> bytes:
    """The field's bytes with an extreme number, a text that is none, a false length, or changed
    inside."""
    if not isinstance(field.value, bytes):
        return write(field._replace(value=dice.choice(EXTREMES)))
    match dice.randrange(6):
        case 0:
            return write(field._replace(value=field.value + NOT_UTF_8))
        case 1:
            return tag(field) + varint(dice.choice(EXTREMES)) + field.value
        case 2:
            return write(field._replace(value=b""))
        case 3:
            return write(field._replace(value=varint(dice.choice(EXTREMES)) * 2))
        case _ if field.value:
            return write(field._replace(value=rearrange(dice, field.value)))
    return write(field)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip,
    cut,
    insert,
    *[rearrange] * 5,
)


def fields_of(message: bytes) -> list[Field]:
    """The fields, or none when these bytes are no message."""
    found: list[Field] = []
    place = 0
    try:
        while place < len(message):
            head, place = read_varint(message, place)
            value: int | bytes
            if head & 7 == VARINT:
                value, place = read_varint(message, place)
            else:
                size = {FIXED64: 8, FIXED32: 4}.get(head & 7)
                if size is None:
                    size, place = read_varint(message, place)
                value, place = message[place : place + size], place + size
            found.append(Field(head >> 3, head & 7, value))
    except IndexError:
        return []
    return found if place == len(message) else []


def read_varint(message: bytes, place: int) -> tuple[int, int]:
    """(number, where it ends). Raises IndexError when it does not end."""
    number = shift = 0
    while message[place] & 0x80:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1


def write(field: Field) -> bytes:
    if not isinstance(field.value, bytes):
        return tag(field) + varint(field.value)
    size = varint(len(field.value)) if field.kind == LENGTH else b""
    return tag(field) + size + field.value


def tag(field: Field) -> bytes:
    return varint(field.number << 3 | field.kind)


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))
