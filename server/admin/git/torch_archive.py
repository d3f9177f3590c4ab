"""Does a PyTorch archive bring code? What torch would unpickle or evaluate when it loads it.

torch.export's loader unpickles the sample inputs without restraint if need be, hands symbolic sizes
to a parser that evaluates them, and finds what a node calls by any dotted name below `torch`; so a
program passes only with nothing there but what torch.export itself writes. Nothing is unpickled
here.
"""

import io
import json
import pickletools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from repository.sources.zips import directory_bytes

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
_SAMPLES = "data/sample_inputs/model.pt"
_GLOBALS = re.compile(
    r"torch (\w+Storage|\w*float\w*|\w*int\d+|bool|complex\d+|Size|device|layout|strided)"
    r"|torch\._utils _rebuild_(tensor_v2|parameter)|collections OrderedDict"
)
_SYMBOL = re.compile(r"Symbol\('[a-z]+[0-9]+'(, [a-z]+=(True|False))*\)")
_NUMBER = re.compile(r"[a-z]{1,3}[0-9]+|[0-9]+(\.[0-9]+)?|True|False")
_FUNCTIONS = re.compile(
    r"Add|Mul|Pow|Integer|Rational|Float|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|IntTrueDiv|Eq|Ne"
    r"|GreaterThan|LessThan|StrictGreaterThan|StrictLessThan|And|Or|Not"
)
_CALLED = re.compile(
    r"torch\.ops\.(aten|prims?|higher_order|quantized|quantized_decomposed)(\.\w+){1,2}"
    r"|_operator\.(add|sub|mul|neg|pos|mod|pow|floordiv|truediv|eq|ne|lt|le|gt|ge|and_|or_|not_"
    r"|getitem)|math\.(ceil|floor|trunc|sqrt)|torch\.sym_\w+"
)
_WORD = re.compile(r"[A-Za-z_0-9.]+")
_OPERATORS = frozenset(" +-*/(),<>=&|~")


def brings_code(path: Path) -> str:
    """Which format's permission the archive needs, "torchscript" or "pickle"; "" for none.

    Raises OSError; what is no archive brings nothing, and cannot be loaded either.
    """
    try:
        with path.open("rb") as file:
            if (directory_bytes(file) or 0) > LARGEST_DIRECTORY_BYTES:
                return "pickle"
        with ZipFile(path) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            if not any(name.endswith("/models/model.json") for name in names):
                return "torchscript"
            roots = {name.partition("/")[0] for name in names}
            if len(set(names)) != len(names) or len(roots) != 1:
                return "pickle"  # readers differ in which one they take
            return "" if all(_is_plain(archive, name) for name in names) else "pickle"
    except (BadZipFile, EOFError, ValueError, KeyError, RecursionError, NotImplementedError):
        return "torchscript"


def _is_plain(archive: ZipFile, name: str) -> bool:
    below = name.partition("/")[2]
    if _PAYLOADS.fullmatch(below):
        return not any(_is_pickled(one) for one in _read_json(archive, name)["config"].values())
    if below == _SAMPLES:
        return _is_tensors(_read(archive, name))
    if below == "models/model.json":
        program = _read_json(archive, name)
        called = all(_CALLED.fullmatch(target) for target in _targets(program))
        return called and all(_is_size(text) for text in _sizes(program))
    return _PLAIN.fullmatch(below) is not None


def _is_pickled(payload: Any) -> bool:
    named = str(payload["path_name"]).startswith(("weight_", "tensor_"))
    return payload["use_pickle"] is not False or not named


def _is_tensors(content: bytes) -> bool:
    """Whether torch.load makes nothing of it but tensors and containers of them."""
    if not content:
        return True
    with ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        pickled = [name for name in names if name.endswith("/data.pkl")]
        if len(pickled) != 1 or len(set(names)) != len(names) or _is_script(names):
            return False
        return _is_harmless(io.BytesIO(_read(archive, pickled[0], LARGEST_PICKLE_BYTES)))


def _is_script(names: list[str]) -> bool:
    return any("/code/" in name or name.endswith("constants.pkl") for name in names)


def _is_harmless(pickled: BinaryIO) -> bool:
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"):
            return False
        if operation.name.startswith(("EXT", "NEXT_BUFFER")):
            return False
        if operation.name == "GLOBAL" and not _GLOBALS.fullmatch(str(argument)):
            return False
    return True


def _sizes(value: Any) -> Iterator[str]:
    """Every symbolic size that stands anywhere in a program."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name == "expr_str":
                yield str(one)
            else:
                yield from _sizes(one)
    elif isinstance(value, list):
        for one in value:
            yield from _sizes(one)


def _targets(value: Any) -> Iterator[str]:
    """What the nodes of a program call, in graphs within graphs, too."""
    if isinstance(value, dict):
        if {"target", "inputs", "outputs"} <= value.keys():
            yield str(value["target"])
        for one in value.values():
            yield from _targets(one)
    elif isinstance(value, list):
        for one in value:
            yield from _targets(one)


def _is_size(text: str) -> bool:
    text = _SYMBOL.sub("s0", text)
    words = _WORD.findall(text)
    known = all(_FUNCTIONS.fullmatch(word) or _NUMBER.fullmatch(word) for word in words)
    return known and set(_WORD.sub("", text)) <= _OPERATORS


def _read(archive: ZipFile, name: str, most_bytes: int = LARGEST_BYTES) -> bytes:
    with archive.open(name) as file:  # what the directory says of its size may be a lie
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{name} is larger than {most_bytes} bytes")
    return content


def _read_json(archive: ZipFile, name: str) -> Any:
    return json.loads(_read(archive, name))
