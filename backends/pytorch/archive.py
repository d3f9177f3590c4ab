"""Does a PyTorch archive bring code? What torch would unpickle or evaluate when it loads it.

torch.export's loader unpickles the sample inputs without restraint if need be, and evaluates much
of its JSON (`backends.pytorch.program_json`); so an archive passes only with nothing in it but what
torch.export itself writes, and only where torch's zip reader sees what ours does. Nothing is
unpickled here.
"""

import io
import json
import pickletools
import re
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from backends.pytorch.program_json import is_plain_payload, is_plain_program
from repository.sources.archives.zips import directory_bytes, is_straight

LARGEST_BYTES = 64 << 20
"""Of an entry that is looked at; no honest program's is larger."""

LARGEST_PICKLE_BYTES = 1 << 20
"""Of a pickle, which is gone through step by step; the tensors' bytes lie beside it."""

LARGEST_DIRECTORY_BYTES = 8 << 20
"""Of an archive's list of entries: some 50,000 of them."""

_PLAIN = re.compile(
    r"models/model\.json|data/weights/weight_\d+|data/constants/tensor_\d+|archive_(format|version)"
    r"|version|byteorder|\.data/(version|serialization_id)|\.(format_version|storage_alignment)"
)
_PAYLOADS = re.compile(r"data/(weights|constants)/model_(weights|constants)_config\.json")
_PAYLOAD = re.compile(r"(weight|tensor)_[0-9]+")
_SAMPLES = "data/sample_inputs/model.pt"
_SAVED = re.compile(
    r"data\.pkl|data/[0-9]+|byteorder|version|\.data/serialization_id"
    r"|\.(format_version|storage_alignment)"
)
"""What torch.save writes below an archive's one folder."""
_GLOBALS = re.compile(
    r"torch ([A-Z]\w+Storage|b?float\d+\w*|u?int\d+|bool|complex\d+|Size|device|layout|strided)"
    r"|torch\._utils _rebuild_(tensor_v2|parameter)|collections OrderedDict"
)


_ENCRYPTED = 0x1
_UNREADABLE = (
    *(BadZipFile, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError),
    *(MemoryError, NotImplementedError, struct.error, zlib.error),
)
"""What damaged archives and JSON of another form end with."""


def brings_code(path: Path) -> str:
    """Which format's permission the archive needs, "torchscript" or "pickle"; "" for none.

    Raises OSError; what is no archive brings nothing, and cannot be loaded either.
    """
    try:
        with path.open("rb") as file, _opened(file) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            if not any(name.endswith("/models/model.json") for name in names):
                return "torchscript"
            return "" if _are_plain(archive, names) else "pickle"
    except _AmbiguousArchive:
        return "pickle"
    except _UNREADABLE:
        return "torchscript"


def _opened(file: IO[bytes]) -> ZipFile:
    """The archive in `file`. Raises _AmbiguousArchive where torch might read another one, or
    none."""
    size_bytes = directory_bytes(file)
    if size_bytes is None:
        raise BadZipFile
    if size_bytes > LARGEST_DIRECTORY_BYTES or not is_straight(file):
        raise _AmbiguousArchive
    archive = ZipFile(file)
    entries = archive.infolist()
    names = [one.filename.casefold() for one in entries]
    if len(set(names)) != len(names):  # torch finds an entry whatever its case
        raise _AmbiguousArchive
    if any(one.filename != one.orig_filename or one.flag_bits & _ENCRYPTED for one in entries):
        # zipfile cuts names at NUL and takes others from extra fields; torch does not.
        raise _AmbiguousArchive
    return archive


class _AmbiguousArchive(Exception):
    """A zip archive whose entries depend on who reads it."""


def _are_plain(archive: ZipFile, names: Collection[str]) -> bool:
    if len({name.partition("/")[0] for name in names}) != 1:
        return False  # readers differ in which one they take
    try:
        return all(_is_plain(archive, name) for name in names)
    except _UNREADABLE:
        return False


def _is_plain(archive: ZipFile, name: str) -> bool:
    below = name.partition("/")[2]
    if _PAYLOADS.fullmatch(below):
        return not any(_is_pickled(one) for one in _read_json(archive, name)["config"].values())
    if below == _SAMPLES:
        return _is_tensors(_read(archive, name))
    if below == "models/model.json":
        return is_plain_program(_read_json(archive, name))
    return _PLAIN.fullmatch(below) is not None


def _is_pickled(payload: Any) -> bool:
    payload_match = _PAYLOAD.fullmatch(str(payload["path_name"]))
    return payload["use_pickle"] is not False or not payload_match or not is_plain_payload(payload)


def _is_tensors(content: bytes) -> bool:
    """Whether torch.load makes nothing of it but tensors and containers of them."""
    if not content:
        return True
    with _opened(io.BytesIO(content)) as archive:
        parts = [name.partition("/") for name in archive.namelist()]
        (root,) = {root for root, _, _ in parts}  # torch takes the first entry's
        # Any other entry could be the pickle for torch, which reads x/DATA.PKL as x/data.pkl.
        if not all(_SAVED.fullmatch(below) for _, _, below in parts):
            return False
        pickled = _read(archive, f"{root}/data.pkl", LARGEST_PICKLE_BYTES)
        return _is_harmless(io.BytesIO(pickled))


def _is_harmless(pickled: BinaryIO) -> bool:
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"):
            return False
        if operation.name.startswith(("EXT", "NEXT_BUFFER")):
            return False
        if operation.name == "GLOBAL" and not _GLOBALS.fullmatch(str(argument)):
            return False
    return True


def _read(archive: ZipFile, name: str, most_bytes: int = LARGEST_BYTES) -> bytes:
    with archive.open(name) as file:  # what the directory says of its size may be a lie
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{name} is larger than {most_bytes} bytes")
    return content


def _read_json(archive: ZipFile, name: str) -> Any:
    return json.loads(_read(archive, name).decode())
