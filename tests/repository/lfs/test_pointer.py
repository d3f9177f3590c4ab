"""Git LFS pointers as text."""

from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repository.lfs.errors import BadPointer
from repository.lfs.pointer import LARGEST_SIZE_BYTES, VERSION, Pointer, parse, write

OID = "ab" * 32
GOOD = f"version {VERSION}\noid sha256:{OID}\nsize 12345\n"


def test_a_pointer_is_read():
    assert parse(GOOD.encode()) == Pointer(OID, 12345)


@given(st.binary(max_size=100), st.integers(0, LARGEST_SIZE_BYTES))
def test_what_is_written_is_read_again(content: bytes, size_bytes: int):
    pointer = Pointer(sha256(content).hexdigest(), size_bytes)
    assert parse(write(pointer)) == pointer
    assert len(write(pointer)) < 1024


def test_lines_of_extensions_are_skipped():
    extension = GOOD.replace("oid ", f"ext-0-foo sha256:{'cd' * 32}\noid ")
    assert parse(extension.encode()) == Pointer(OID, 12345)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"weights",
        b"version https://example.org/other\n",
        b"version https://git-lfs.github.com/spec/v10\noid x\n",
        b"\x08\x07\x12" + GOOD.encode(),
        GOOD.encode() + b"x" * 1024,
    ],
)
def test_another_file_is_no_pointer(content: bytes):
    assert parse(content) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (GOOD.replace(OID, OID.upper()), "oid 'sha256:AB"),
        (GOOD.replace("sha256:", "md5:"), "oid 'md5:"),
        (GOOD.replace(f"oid sha256:{OID}\n", ""), "oid ''"),
        (GOOD.replace("12345", "-1"), "size '-1'"),
        (GOOD.replace("12345", "012"), "size '012'"),
        (GOOD.replace("12345", "1e3"), "size '1e3'"),
        (GOOD.replace("12345", "9" * 19), "size '9999"),
        (GOOD.replace("12345", "١"), "size '١'"),
        (GOOD.replace("size 12345\n", ""), "size ''"),
        (GOOD.rstrip("\n"), "newline"),
        (GOOD.replace("\n", "\r\n"), "line 2"),
        (GOOD + "size 12345\n", "each once"),
        (GOOD.replace("oid", "zid"), "each once, sorted"),
        (GOOD.replace("size 12345", "size"), "line 3"),
        (GOOD + "\n", "line 4"),
    ],
)
def test_what_is_nearly_a_pointer_is_refused_with_the_reason(content: str, complaint: str):
    with pytest.raises(BadPointer, match=complaint):
        parse(content.encode())


def test_a_pointer_that_is_not_utf_8_is_refused():
    with pytest.raises(BadPointer, match="UTF-8"):
        parse(GOOD.encode() + b"\xff \xff\n")


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(tail: bytes):
    with suppress(BadPointer):
        parse(f"version {VERSION}\n".encode() + tail)
