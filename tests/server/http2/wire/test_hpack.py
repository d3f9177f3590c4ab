"""HPACK against the examples of RFC 7541, and against hostile blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http2.wire import huffman
from server.http2.wire.hpack import HeaderListTooLarge, HpackDecoder, HpackError, literal

REQUESTS = {
    "plain (C.3)": (
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ),
    "Huffman (C.4)": (
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ),
}
DECODED = (
    ":method GET, :scheme http, :path /, :authority www.example.com",
    ":method GET, :scheme http, :path /, :authority www.example.com, cache-control no-cache",
    ":method GET, :scheme https, :path /index.html, :authority www.example.com, "
    "custom-key custom-value",
)


def written(fields) -> str:
    return ", ".join(f"{name.decode()} {value.decode()}" for name, value in fields)


@pytest.mark.parametrize("case", REQUESTS)
def test_the_examples_of_the_standard_are_read(case):
    decoder = HpackDecoder()
    blocks = [bytes.fromhex(block) for block in REQUESTS[case]]
    assert tuple(written(decoder.decode(block)) for block in blocks) == DECODED
    assert decoder.changes == 3


def codes() -> dict[int, str]:
    return {symbol: f"{code:0{length}b}" for length, code, symbol in huffman._codes()}


def coded(text: bytes, padding: str = "1111111") -> bytes:
    bits = "".join(codes()[octet] for octet in text)
    bits += padding[: -len(bits) % 8]
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@given(st.binary(max_size=200))
def test_every_octet_comes_back_from_its_code(text):
    assert huffman.decode(coded(text)) == text


def test_some_codes_are_those_of_the_standard():
    table = codes()
    assert (table[ord("0")], table[ord("%")], table[ord("z")]) == ("00000", "010101", "1111011")
    assert (table[0], table[255]) == ("1111111111000", f"{0x3FFFFEE:026b}")
    assert table[256] == "1" * 30


HOSTILE = {
    "an index of nothing": b"\xbe",
    "index zero": b"\x80",
    "a name index of nothing": b"\x7f\x80\x01\x01v",
    "a block that ends in an integer": b"\xff",
    "an integer without end": b"\xff" + b"\x80" * 20,
    "an integer too large": b"\x7f\xff\xff\xff\xff\x7f",
    "a string longer than its block": b"\x00\x05ab",
    "a name without a value": b"\x00\x01a",
    "Huffman padding of zeros": b"\x00\x01a\x81" + coded(b"a", "0000000"),
    "Huffman padding of a whole octet": b"\x00\x01a\x82" + coded(b"a") + b"\xff",
    "the end-of-string symbol": b"\x00\x01a\x84\xff\xff\xff\xff",
    "a table larger than offered": b"\x3f\xe2\x1f",
    "a table resized behind a field": b"\x82\x20",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_block_is_refused(case):
    with pytest.raises(HpackError):
        HpackDecoder().decode(HOSTILE[case])


def test_a_smaller_table_forgets_the_oldest():
    decoder = HpackDecoder()
    decoder.decode(b"\x40\x01a\x011" + b"\x40\x01b\x012")
    assert decoder.decode(b"\xbe\xbf") == ((b"b", b"2"), (b"a", b"1"))
    assert decoder.decode(b"\x3f\x03" + b"\xbe") == ((b"b", b"2"),)  # 34 bytes: one entry
    with pytest.raises(HpackError):
        decoder.decode(b"\xbf")
    assert decoder.decode(b"\x20") == ()
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")


def test_an_entry_larger_than_the_table_empties_it():
    decoder = HpackDecoder()
    decoder.decode(b"\x40\x01a\x011")
    large = b"v" * 5000
    assert decoder.decode(b"\x40\x01b" + literal(((b"", large),))[2:]) == ((b"b", large),)
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")


def test_a_list_too_large_is_refused_and_the_table_stays_right():
    decoder = HpackDecoder()
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(b"\x40\x01a" + literal(((b"", b"v" * 4000),))[2:] + b"\xbe" * 5)
    assert decoder.decode(b"\xbe") == ((b"a", b"v" * 4000),)


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=20))
def test_what_we_write_is_read_without_a_table(fields):
    decoder = HpackDecoder()
    assert decoder.decode(literal(tuple(fields))) == tuple(fields)
    assert decoder.changes == 0
