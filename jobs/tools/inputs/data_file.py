"""A data file: an .npz with an array for each input of the network and, perhaps, labels."""

import lzma
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jobs.tools.networks.tensors import Array, NetworkTensor
from jobs.tools.work import refuse

MOST_BYTES = 2 << 30
DEFAULT_LABELS = "labels"
"""The only name of labels that the data may lack."""
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError),
    *(ValueError, TypeError, KeyError, RuntimeError),
)
"""What damaged and encrypted archives end with."""
WANTED = "an .npz file with an array for each input, by its name, and one row for each example"


class DataRows(NamedTuple):
    """Arrays by input name, all with the same number of rows; labels INT [rows] or None."""

    inputs: dict[str, Array]
    labels: Array | None

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(next(iter(self.inputs.values())))

    def first(self, count: int) -> "DataRows":
        """The first rows, up to `count`."""
        return self.take(np.arange(min(count, self.length)))

    def take(self, chosen: Array) -> "DataRows":
        """These rows, in this order."""
        labels = None if self.labels is None else self.labels[chosen]
        return DataRows({name: array[chosen] for name, array in self.inputs.items()}, labels)


def read_rows(
    place: str, tensors: Sequence[NetworkTensor], labels: str, *, nan: bool = False
) -> DataRows:
    """Read the data of a task for a network's inputs.

    Refuses a missing or damaged file, wrong names, shapes and types, no rows, and NaN and
    infinities unless `nan`.
    """
    arrays = read_arrays(_file(place))
    found = arrays.pop(labels, None) if labels not in {one.name for one in tensors} else None
    _check_names(arrays, tensors)
    inputs = {one.name: _fitted(arrays[one.name], one, nan) for one in tensors}
    counts = {name: len(array) for name, array in inputs.items()}
    if len(set(counts.values())) > 1:
        refuse(f"the arrays of the data have different numbers of rows: {counts}")
    if not next(iter(counts.values())):
        refuse(f"the data has no rows; give {WANTED}")
    if found is None and labels not in ("", DEFAULT_LABELS):
        refuse(f"the data has no array '{labels}', which the spec names as labels")
    return DataRows(inputs, _labels(found, labels, next(iter(counts.values()))))


def _file(place: str) -> Path:
    if not place:
        refuse(f"the job has no data; give {WANTED}. Random numbers would not do")
    path = Path(place)
    found = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if len(found) != 1:
        refuse(f"the data folder has {len(found)} .npz files; it must have one: {WANTED}")
    return found[0]


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name. Refuses what is none, is damaged, encrypted or larger
    than MOST_BYTES unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(one.file_size for one in archive.infolist())
        if size > MOST_BYTES:
            refuse(f"the data has {size:,} bytes unpacked; at most {MOST_BYTES:,} are read")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        refuse(f"the data file '{path.name}' cannot be read ({error}); give {WANTED}")


def _check_names(arrays: dict[str, Array], tensors: Sequence[NetworkTensor]) -> None:
    wanted = {one.name for one in tensors}
    if arrays.keys() != wanted:
        refuse(
            f"the data has the arrays {_listed(arrays)}; the network's inputs are "
            f"{_listed(wanted)}: the names must be the same"
        )


def _fitted(array: Array, tensor: NetworkTensor, nan: bool) -> Array:
    if not tensor.shape or not array.ndim:
        whose = "input" if not tensor.shape else "data's array"
        refuse(f"the {whose} '{tensor.name}' is a single number; rows are needed in front")
    shape: tuple[int | None, ...] = (len(array), *tensor.shape[1:])
    if array.ndim == len(tensor.shape) - 1 and tensor.shape[1:] == (1,):
        array, shape = array[:, None], (len(array), 1)
    if len(shape) != array.ndim or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        refuse(
            f"the data's array '{tensor.name}' has the shape {list(array.shape)}; the input takes "
            f"{['rows', *('any' if size is None else size for size in tensor.shape[1:])]}"
        )
    if not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
        refuse(
            f"the data's array '{tensor.name}' is {array.dtype}; the input takes "
            f"{np.dtype(tensor.dtype).name}"
        )
    if array.dtype.kind == "f" and not nan and not np.all(np.isfinite(array)):
        rows = int(np.sum(~np.all(np.isfinite(array.reshape(len(array), -1)), axis=1)))
        refuse(
            f"{rows} of {len(array)} rows of the data's array '{tensor.name}' hold NaN or "
            "infinities; leave these rows out"
        )
    return array.astype(tensor.dtype, copy=False)


def _labels(array: Array | None, name: str, count: int) -> Array | None:
    if array is None:
        return None
    if array.dtype.kind not in "iu" or array.shape != (count,):
        refuse(
            f"the data's labels '{name}' are {array.dtype} {list(array.shape)}; they must be "
            f"integers [{count}], the index of the right class of each row"
        )
    return array


def _listed(names: object) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"  # type: ignore[call-overload]
