"""A file's kind is told by its first bytes."""

import gzip
import io
import pickle
import random
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from repository.files.contents import HEAD_BYTES, Content, content_of
from support.imports import onnx_model


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("x/data.pkl", b"")
    return out.getvalue()


def safetensors(header: str = '{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}') -> bytes:
    return struct.pack("<Q", len(header)) + header.encode()


def windows_program() -> bytes:
    return b"MZ" + bytes(58) + struct.pack("<L", 64) + b"PE\0\0"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", Content.EMPTY),
        ("Größe\nmaß\t1\r\n".encode(), Content.TEXT),
        ("maß".encode("latin-1"), Content.TEXT),
        (b'{"a": 1}', Content.TEXT),
        (b"text\0text", Content.DATA),
        (onnx_model(), Content.DATA),
        (safetensors(), Content.SAFETENSORS),
        (b"\x7fELF\2\1\1", Content.NATIVE),
        (windows_program(), Content.NATIVE),
        (b"\xcf\xfa\xed\xfe\7\0\0\1", Content.NATIVE),
        (b"\xca\xfe\xba\xbe\0\0\0\2", Content.NATIVE),
        (b"!<arch>\n", Content.NATIVE),
        (archive(), Content.ZIP),
        (gzip.compress(b"x", mtime=0), Content.COMPRESSED),
        (b"\x89HDF\r\n\x1a\n", Content.HDF5),
        (b"GGUF\3\0\0\0", Content.GGUF),
        (b"\x93NUMPY\1\0", Content.NUMPY),
        (b"ftrt\0\0\0\0", Content.TENSORRT),
        *((pickle.dumps({"a": [1, "b"]}, protocol), Content.PICKLE) for protocol in (2, 3, 4, 5)),
        (pickle.dumps(b"x" * 2 * HEAD_BYTES, 4)[:100], Content.DATA),
    ],
)
def test_a_file_is_told_by_what_it_holds(content: bytes, kind: Content) -> None:
    assert content_of(content[:HEAD_BYTES], len(content)) == kind


def test_this_interpreter_and_its_bytecode_are_native_and_bytecode(tmp_path: Path) -> None:
    import py_compile

    source = tmp_path / "m.py"
    source.write_text("x = 1\n")
    compiled = py_compile.compile(str(source), str(tmp_path / "m.pyc"))
    assert compiled is not None
    assert content_of(Path(sys.executable).read_bytes()[:HEAD_BYTES], 10**6) == Content.NATIVE
    assert content_of(Path(compiled).read_bytes(), 100) == Content.BYTECODE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_random_weights_are_taken_for_nothing_else() -> None:
    noise = random.Random(7)
    for start in (b"", b"MZ", b"{}"):
        for _ in range(50):
            head = start + noise.randbytes(4096)
            assert content_of(head, len(head)) == Content.DATA
