"""Archives of arrays, told apart from archives that could hold code."""

import io
import zipfile

import numpy as np
import pytest

from repository.files.array_archives import holds_arrays


def archive(*names: str) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name in names:
            made.writestr(name, b"x")
    return file


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_what_numpy_writes_holds_arrays(write: object) -> None:
    file = io.BytesIO()
    write(file, input=np.zeros((3, 2)), labels=np.arange(3))  # type: ignore[operator]
    assert holds_arrays(file)


@pytest.mark.parametrize(
    "file",
    [
        archive(),
        archive("a.npy", "data.pkl"),
        io.BytesIO(archive("a.npy").getvalue() + b"more"),
        io.BytesIO(b""),
        io.BytesIO(b"PK\x03\x04" + b"x" * 100),
        io.BytesIO(b"PK\x05\x06" + b"\xff" * 18),
    ],
    ids=["empty", "pickle", "more behind it", "nothing", "no list", "long list"],
)
def test_other_archives_do_not(file: io.BytesIO) -> None:
    assert not holds_arrays(file)
