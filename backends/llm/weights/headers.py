"""What safetensors files say they hold, read from their headers alone; no torch, no weights.

The checker holds a checkpoint against its config by it; the engine reads the numbers
(`backends.llm.weights.checkpoint`).
"""

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from backends.llm.config.fields import read_fields
from backends.llm.errors import BadCheckpoint
from backends.llm.weights.stored_weights import as_stored

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000
"""As the safetensors library takes."""
MAX_FILES = 10_000

_LENGTH_BYTES = 8
_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


class TensorHeader(NamedTuple):
    """A tensor as its file's header has it."""

    file: str
    dtype: str
    shape: tuple[int, ...]


def read_headers(folder: Path) -> dict[str, TensorHeader]:
    """Every tensor of a checkpoint folder by name. Raises BadCheckpoint naming the file."""
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise BadCheckpoint(f"there is neither {SINGLE} nor {INDEX}; only safetensors are read")
        return _read(folder, SINGLE)
    listed = _listed(folder)
    files = {file: _read(folder, file) for file in dict.fromkeys(listed.values())}
    for name, file in listed.items():
        if name not in files[file]:
            raise BadCheckpoint(f"{INDEX} says that '{name}' is in {file}, which does not have it")
    return {name: files[file][name] for name, file in listed.items()}


def hold_against(
    headers: Mapping[str, TensorHeader], wanted: Iterable[tuple[str, tuple[int, ...]]]
) -> None:
    """Raises BadCheckpoint naming a tensor that is missing, or of another shape or kind."""
    shapes = {name: header.shape for name, header in headers.items()}
    stored = (one for name, shape in wanted for one in as_stored(name, shape, shapes))
    for name, shape, dtypes in stored:
        found = headers.get(name)
        if found is None:
            examples = ", ".join(f"'{one}'" for one in list(headers)[:3])
            raise BadCheckpoint(
                f"the checkpoint lacks the tensor '{name}'; it has {len(headers)} others, such as "
                f"{examples}"
            )
        if found.shape != shape:
            raise BadCheckpoint(
                f"{found.file}: '{name}' has shape {list(found.shape)}, but config.json makes it "
                f"{list(shape)}"
            )
        if found.dtype not in dtypes:
            raise BadCheckpoint(
                f"{found.file}: '{name}' is {found.dtype}; it must be one of {', '.join(dtypes)}"
            )


def _listed(folder: Path) -> dict[str, str]:
    fields = read_fields(folder / INDEX).within("weight_map")
    if fields is None:
        raise BadCheckpoint(f"{INDEX} lacks 'weight_map'")
    listed = {name: plain_name(file) for name, file in fields.values.items()}
    if len(set(listed.values())) > MAX_FILES:
        raise BadCheckpoint(f"{INDEX}: 'weight_map' names more than {MAX_FILES} files")
    return listed


def plain_name(file: object) -> str:
    """A file beside the index. Raises BadCheckpoint for anything else."""
    plain = isinstance(file, str) and Path(file).name == file and not file.startswith(".")
    if not isinstance(file, str) or not plain or not file.endswith(".safetensors"):
        raise BadCheckpoint(
            f"{INDEX}: 'weight_map' names {file!r}; it must be a .safetensors file beside it"
        )
    return file


def _read(folder: Path, file: str) -> dict[str, TensorHeader]:
    try:
        with (folder / file).open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(0)
            length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
            room = size - _LENGTH_BYTES - length
            if size < _LENGTH_BYTES or length > MAX_HEADER_BYTES or room < 0:
                raise BadCheckpoint(
                    f"{file} is no safetensors file, or was cut off: it has {size} bytes and says "
                    f"that its header has {length}"
                )
            header = json.loads(opened.read(length))
    except FileNotFoundError:
        raise BadCheckpoint(f"{INDEX} names {file}, which is not there") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{file} cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise BadCheckpoint(f"{file}: its header is no JSON object")
    header.pop("__metadata__", None)
    return {name: _described(file, name, entry, room) for name, entry in header.items()}


def _described(file: str, name: str, entry: Any, room: int) -> TensorHeader:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        right = (
            all(type(one) is int and one >= 0 for one in (*shape, begin, end))
            and 0 <= begin <= end <= room
            and (dtype not in _ITEM_BYTES or prod(shape) * _ITEM_BYTES[dtype] == end - begin)
        )
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise BadCheckpoint(
            f"{file}: what its header says of '{name:.200}' does not fit the file ({room} bytes of "
            f"tensors): {str(entry)[:200]}"
        )
    return TensorHeader(file, str(dtype), shape)
