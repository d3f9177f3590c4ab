"""What is read of a request's headers."""

import pytest

from server.http2.calls.head import read_head
from server.http2.stream import MalformedHeaders
from support.http2 import POST

MINUTE = (b"grpc-timeout", b"1M")


def test_a_plain_call():
    head = read_head(POST)
    assert (head.path, head.metadata, head.timeout_s, head.fault) == ("/t/Echo", (), None, None)


def test_metadata_keeps_its_order_and_binary_values_are_decoded():
    fields = ((b"k", b"1"), (b"k", b"2"), (b"b-bin", b"AAE,AA=="), (b"user-agent", b"me"))
    assert read_head((*POST, *fields)).metadata == (
        ("k", "1"),
        ("k", "2"),
        ("b-bin", b"\0\1"),
        ("b-bin", b"\0"),
        ("user-agent", "me"),
    )


def test_spaces_around_values_are_no_part_of_them():
    fields = ((b"k", b" a b\t "), (b"b-bin", b" AAE , AA== "), (b"grpc-timeout", b" 1S"))
    head = read_head((*POST, *fields))
    assert head.metadata == (("k", "a b"), ("b-bin", b"\0\1"), ("b-bin", b"\0"))
    assert head.timeout_s == 1.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2H", 7200), ("1M", 60), ("3S", 3), ("250m", 0.25), ("5u", 5e-6), ("99999999n", 0.099999999)],
)
def test_every_unit_of_a_timeout_is_understood(text, seconds):
    assert read_head((*POST, (b"grpc-timeout", text.encode()))).timeout_s == pytest.approx(seconds)


FAULTS = {
    "a timeout without unit": ((b"grpc-timeout", b"5"), "INTERNAL", "grpc-timeout '5'"),
    "a timeout too long": ((b"grpc-timeout", b"123456789S"), "INTERNAL", "1 to 8 digits"),
    "an encoding not offered": (
        (b"grpc-encoding", b"snappy"),
        "UNIMPLEMENTED",
        "takes identity, deflate, gzip",
    ),
    "metadata of very many values": ((b"b-bin", b"," * 16_000), "INTERNAL", "more than 100 values"),
    "metadata that is no base64": ((b"b-bin", b"A?"), "INTERNAL", "'b-bin' is no base64"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_gRPC_does_not_allow_fails_the_call(case):
    field, code, text = FAULTS[case]
    fault = read_head((*POST, field)).fault
    assert fault is not None
    assert fault.code == code
    assert text in str(fault)


def changed(name: bytes, value: bytes):
    return tuple((key, value if key == name else old) for key, old in POST)


def test_what_is_no_gRPC_is_refused_in_plain_HTTP():
    assert read_head(changed(b"content-type", b"application/json")).refused_with == "415"
    assert read_head(changed(b"content-type", b"application/grpcweb")).refused_with == "415"
    assert read_head(changed(b":method", b"GET")).refused_with == "405"
    assert not read_head(changed(b"content-type", b"application/grpc+proto")).refused_with


MALFORMED = {
    "no path": POST[:2] + POST[3:],
    "an empty path": changed(b":path", b""),
    "no method": POST[1:],
    "a pseudo-header twice": (POST[0], *POST),
    "a pseudo-header behind": (*POST, (b":authority", b"a")),
    "an unknown pseudo-header": ((b":status", b"200"), *POST),
    "an upper-case name": (*POST, (b"Key", b"v")),
    "a name of nothing": (*POST, (b"", b"v")),
    "a connection header": (*POST, (b"connection", b"close")),
    "te other than trailers": changed(b"te", b"gzip"),
    "a line break in a value": (*POST, (b"k", b"a\r\nb")),
    "a path that begins with a space": changed(b":path", b" /t/Echo"),
    "a content-length of words": (*POST, (b"content-length", b"many")),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_request_is_malformed(case):
    with pytest.raises(MalformedHeaders):
        read_head(MALFORMED[case])
