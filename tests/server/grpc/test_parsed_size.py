"""gRPC messages that are small on the wire and large once they are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from server.errors import InvalidRequest, RequestTooLarge
from server.grpc import parsed_size
from server.grpc.calls import parse

KIND = pb.ModelInferRequest


def message_in(tag: bytes, content: bytes) -> bytes:
    size, written = len(content), bytearray(tag)
    while size > 0x7F:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*written, size]) + content


def tensor_with(content: bytes) -> bytes:
    return message_in(b"\x2a", content)


MANY = parsed_size.MOST_FIELDS
FLOODS = {
    "inputs": b"\x2a\x00" * (MANY + 1),
    "requested outputs": b"\x32\x00" * (MANY + 1),
    "raw contents": b"\x3a\x00" * (MANY + 1),
    "parameters of an input": tensor_with(b"\x22\x00" * MANY),
    "strings": tensor_with(message_in(b"\x2a", b"\x42\x00" * MANY)),
    "numbers one by one": tensor_with(message_in(b"\x2a", b"\x10\x00" * MANY)),
    "dimensions": tensor_with(message_in(b"\x1a", bytes(parsed_size.MOST_PACKED_BYTES + 1))),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_small_fields_is_refused_before_it_is_parsed(flood: str) -> None:
    """60 MB of empty inputs, 60 KB when compressed, took 2.7 GB and held the loop for seconds."""
    KIND.FromString(FLOODS[flood])  # which the parser would take
    with pytest.raises(RequestTooLarge, match=r"the message has more than .*; send tensors in raw"):
        parse(KIND, FLOODS[flood])


def test_as_many_strings_as_a_request_may_have_are_parsed() -> None:
    contents = pb.InferTensorContents(bytes_contents=[b"a"] * parsed_size.MOST_STRINGS)
    message = KIND(inputs=[KIND.InferInputTensor(name="X", contents=contents)])
    assert parse(KIND, message.SerializeToString()) == message


PIECES = st.sampled_from(
    [
        *(b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x2a\x02\x22\x00", b"\x22\x00", b"\x2a"),
        *(b"\x80", b"\x0b", b"\x0c", b"\x00", b"\x05", b"\x0d", b"\x09", b"\x01\x00"),
        b"\xaa\x80\x00\x00",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=3), max_size=12).map(b"".join))
def test_no_message_that_passes_has_more_fields_than_were_counted(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsed_size, "FREE_BYTES", 0)
        patch.setattr(parsed_size, "MOST_FIELDS", 3)
        try:
            message = parse(KIND, data)
        except InvalidRequest:
            return
    fields = [*message.inputs, *message.outputs, *message.raw_input_contents, *message.parameters]
    assert len(fields) + sum(len(one.parameters) for one in message.inputs) <= 3
