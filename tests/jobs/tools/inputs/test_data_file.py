"""Data files that cannot be read are refused with what would be."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from jobs.tools.inputs.data_file import read_arrays, read_rows
from jobs.tools.networks.tensors import NetworkTensor
from jobs.tools.work import WorkRefused


def damaged(path: Path) -> None:
    """The compressed bytes of the array, changed."""
    np.savez_compressed(path, X=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[60:90] = b"\xff" * 30
    path.write_bytes(content)


def encrypted(path: Path) -> None:
    """The flag that the entry is, in both of its records."""
    np.savez(path, X=np.arange(10))
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(10))


def not_an_array(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00")


@pytest.mark.parametrize("write", [damaged, encrypted, single_array, not_an_array])
def test_what_is_no_npz_is_refused(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "rows.npz")
    with pytest.raises(WorkRefused, match=r"'rows\.npz' cannot be read .*give an \.npz file"):
        read_arrays(tmp_path / "rows.npz")


def test_a_number_without_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.float32(1.0))
    place = str(tmp_path / "rows.npz")
    for shape, whose in (((None, 1), "data's array"), ((), "input")):
        with pytest.raises(WorkRefused, match=f"the {whose} 'X' is a single number"):
            read_rows(place, [NetworkTensor("X", np.float32, shape)], "labels")
