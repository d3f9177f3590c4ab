"""Messages out of DATA frames, however they are cut."""

import gzip
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http2.calls.messages import BRIEF_BYTES, INFLATED_BYTES, Assembler
from server.http2.calls.status import CallFailed
from support.http2 import message


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 60), min_size=1))
def test_messages_are_the_same_however_the_body_is_cut(contents, cuts):
    body = b"".join(map(message, contents))
    assembler = Assembler(100, "identity")
    found, position, turn = [], 0, 0
    while position < len(body):
        end = position + cuts[turn % len(cuts)]
        found += assembler.feed(body[position:end])
        position, turn = end, turn + 1
    assert [assembler.plain(one) for one in found] == contents
    assert not assembler.inside


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_messages_are_opened(encoding, pack):
    packed = pack(b"x" * 1000)
    assembler = Assembler(1000, encoding)
    (found,) = assembler.feed(b"\1" + message(packed)[1:])
    assert assembler.plain(found) == b"x" * 1000


def failure(encoding: str, body: bytes) -> tuple[str, str]:
    assembler = Assembler(1000, encoding)
    with pytest.raises(CallFailed) as failed:
        [assembler.plain(found) for found in assembler.feed(body)]
    return failed.value.code, str(failed.value)


def squeezed(packed: bytes) -> bytes:
    return b"\1" + message(packed)[1:]


BAD = {
    "too large": ("identity", message(b"x" * 1001), "RESOURCE_EXHAUSTED", "(1001 vs. 1000)"),
    "too large once opened": (
        "gzip",
        squeezed(gzip.compress(b"x" * 1001)),
        "RESOURCE_EXHAUSTED",
        "larger than max",
    ),
    "no gzip": ("gzip", squeezed(b"nonsense"), "INTERNAL", "no gzip"),
    "half a gzip": ("gzip", squeezed(gzip.compress(b"x")[:-4]), "INTERNAL", "cut short"),
    "compressed without encoding": ("identity", squeezed(b""), "INTERNAL", "without grpc-encoding"),
    "an unknown flag": ("identity", b"\2\0\0\0\0", "INTERNAL", "first byte is 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_messages_fail_with_their_reason(case):
    encoding, body, code, text = BAD[case]
    got_code, got_text = failure(encoding, body)
    assert got_code == code
    assert text in got_text


def test_a_message_too_large_is_refused_before_it_comes():
    assert failure("identity", message(b"x" * 5000)[:5])[0] == "RESOURCE_EXHAUSTED"


def test_a_body_that_ends_early_is_noticed():
    assembler = Assembler(1000, "identity")
    for part in (b"\0", b"\0\0\0\2", b"x"):
        assembler.feed(part)
        assert assembler.inside
    assert assembler.feed(b"y") == [(0, b"xy")]
    assert not assembler.inside


def only(packed: bytes, limit: int) -> tuple[Assembler, tuple[int, bytes]]:
    assembler = Assembler(limit, "gzip")
    (found,) = assembler.feed(squeezed(packed))
    return assembler, found


def test_a_small_message_that_opens_to_more_than_its_share_is_refused_whatever_the_limit():
    assembler, found = only(gzip.compress(bytes(INFLATED_BYTES + 1)), 2**31 - 1)
    with pytest.raises(
        CallFailed, match=rf"over {INFLATED_BYTES} .*send it without compress"
    ) as no:
        assembler.plain(found)
    assert no.value.code == "RESOURCE_EXHAUSTED"
    assembler, found = only(gzip.compress(bytes(INFLATED_BYTES)), 2**31 - 1)
    assert len(assembler.plain(found)) == INFLATED_BYTES


@pytest.mark.parametrize("content", [bytes(BRIEF_BYTES + 1), random.randbytes(BRIEF_BYTES)])
def test_what_takes_long_to_open_is_not_opened_briefly(content):
    assembler, found = only(gzip.compress(content), 2**20)
    assert assembler.brief(found) is None
    assert assembler.plain(found) == content


def test_what_is_small_is_opened_briefly():
    assembler, found = only(gzip.compress(bytes(BRIEF_BYTES)), 2**20)
    assert assembler.brief(found) == bytes(BRIEF_BYTES)
    assert assembler.brief((0, b"plain")) == b"plain"
