"""The files of a version folder, copied from where an artefact lies."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from repository.formats import format_of, unserved_reason
from server.cli.progress import ProgressLine

_CHECKPOINT = (".json", ".safetensors", ".jinja", ".txt", ".model")
_WITH_WEIGHTS = (".xml", ".param")
"""Formats of two files: the weights lie in a .bin of the same name."""
_BOOSTERS = {".json": ("model.json", b'"learner"'), ".txt": ("model.txt", b"tree\nversion=")}
"""Ending → the name in a version folder, and what such a file begins with."""
_HEAD_BYTES, _PIECE_BYTES = 4096, 1 << 24


class BadArtefact(Exception):
    """Why nothing can be made of it: one line for the person."""


def files_of(artefact: Path) -> list[tuple[Path, str]]:
    """Each file to copy and its name in the version folder. Raises BadArtefact."""
    if artefact.is_dir():
        return list(_checkpoint(artefact))
    if booster := _booster_file(artefact):
        return [(artefact, booster)]
    found = format_of(artefact.name)
    if found is None:
        raise BadArtefact(
            f"{artefact} is no model's file by its ending; docs/formats.md lists those known"
        )
    if not found.backend or found.remedy:
        raise BadArtefact(unserved_reason([artefact.name]))
    files = [(artefact, found.file)]
    if found.suffix == ".onnx":
        files += [(artefact.parent / name, name) for name in _external_data(artefact)]
    if found.suffix in _WITH_WEIGHTS:
        weights = artefact.with_suffix(".bin")
        if not weights.is_file():
            raise BadArtefact(f"{artefact} needs its weights in '{weights.name}' beside it")
        files.append((weights, Path(found.file).with_suffix(".bin").name))
    return files


def _booster_file(artefact: Path) -> str:
    """What a booster's file is called in a version folder, "" where it is none. Its ending says
    nothing, and its first bytes do."""
    wanted = _BOOSTERS.get(artefact.suffix)
    if wanted is None:
        return ""
    name, mark = wanted
    try:
        with open(artefact, "rb") as file:
            return name if mark in file.read(_HEAD_BYTES) else ""
    except OSError as error:
        raise BadArtefact(f"{artefact} cannot be read: {error.strerror}") from None


def _checkpoint(folder: Path) -> Iterator[tuple[Path, str]]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    weights = any(name.endswith(".safetensors") for name in names)
    if "config.json" not in names or not weights:
        raise BadArtefact(
            f"{folder} is no Hugging Face folder of a model: it needs config.json and "
            f"*.safetensors, and has {', '.join(names[:8]) or 'no files'}"
        )
    for name in names:
        if name.endswith(_CHECKPOINT) and not name.startswith("."):
            yield folder / name, name


def _external_data(path: Path) -> list[str]:
    """The files beside an ONNX file that hold its weights. Raises BadArtefact."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, OSError) as error:
        raise BadArtefact(f"{path} is not an ONNX model, or is cut short: {error}") from None
    names = {
        entry.value
        for tensor in _get_all_tensors(model)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in sorted(names):
        if os.path.basename(name) != name or not (path.parent / name).is_file():
            raise BadArtefact(f"{path} keeps weights in '{name}', which is not a file beside it")
    return sorted(names)


def copy(source: Path, target: Path) -> None:
    """Raises OSError."""
    size = source.stat().st_size
    with (
        open(source, "rb") as read,
        open(target, "xb") as write,
        ProgressLine(f"copying {source.name}", size, 1 << 20, "MiB") as progress,
    ):
        while piece := read.read(_PIECE_BYTES):
            write.write(piece)
            progress.add(len(piece))
    shutil.copystat(source, target)
