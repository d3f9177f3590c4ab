"""What lies in a staging folder, told from the names of its files. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from repository.folders.foreign_weights import foreign_weights
from repository.sources.errors import BadLayout

CONFIG_NAME = "config.pbtxt"
ARTEFACTS = (".onnx", ".pt2", ".pt", ".safetensors")
MODEL_PY = "model.py"

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_MOST_LISTED = 12


class SourceKind(Enum):
    """MODEL: a model's folder, versions and all. VERSION: the files of one version.
    CHECKPOINT: what a Hugging Face hub holds; its files are those of one version."""

    MODEL = "a model folder"
    VERSION = "files of one version"
    CHECKPOINT = "a Hugging Face checkpoint"


@dataclass(frozen=True, slots=True)
class SourceLayout:
    """What was found. `versions` are the numbers it brings; `places` says where each fetched file
    goes below the model's folder."""

    shape: SourceKind
    versions: tuple[int, ...]
    has_config: bool
    places: dict[str, str]


def layout(paths: Collection[str], kind: SourceKind | None = None, number: int = 1) -> SourceLayout:
    """Recognise a folder by its files' relative paths; raises `BadLayout`, listing what is there.

    `kind` is what the caller knows it to be. A version's files become version `number`.
    """
    shape = _shape(paths, kind)
    if shape is None or (kind is not None and shape is not kind):
        raise BadLayout(_complaint(paths, kind))
    if shape is SourceKind.MODEL:
        versions = {int(path.split("/")[0]) for path in paths if _in_version(path)}
        own = {path: path for path in paths}
        return SourceLayout(shape, tuple(sorted(versions)), CONFIG_NAME in paths, own)
    places = {path: f"{number}/{path}" for path in paths}
    lone = _lone_artefact(paths) if shape is SourceKind.VERSION else None
    if lone is not None:
        places[lone] = f"{number}/model{lone[lone.rindex('.') :]}"
    return SourceLayout(shape, (number,), False, places)


def wrapper(paths: Collection[str]) -> str:
    """The single folder around all of these files, or ""; a version's folder is no wrapper."""
    tops = {path.split("/")[0] if "/" in path else "" for path in paths}
    top = tops.pop() if len(tops) == 1 else ""
    return "" if _VERSION.fullmatch(top) else top


def _shape(paths: Collection[str], kind: SourceKind | None) -> SourceKind | None:
    tops = {path for path in paths if "/" not in path}
    if CONFIG_NAME in tops or any(_in_version(path) for path in paths):
        return SourceKind.MODEL
    if kind is SourceKind.VERSION and paths:
        return SourceKind.VERSION
    if "config.json" in tops and any(path.endswith(".safetensors") for path in tops):
        return SourceKind.CHECKPOINT
    if MODEL_PY in tops or any(path.endswith(ARTEFACTS) for path in tops):
        return SourceKind.VERSION
    return None


def _lone_artefact(paths: Collection[str]) -> str | None:
    """The one artefact at the top that a backend would look for under the name "model"."""
    found = [path for path in paths if "/" not in path and path.endswith((".onnx", ".pt2", ".pt"))]
    alone = len(found) == 1 and MODEL_PY not in paths
    return found[0] if alone else None


def _in_version(path: str) -> bool:
    top, slash, _ = path.partition("/")
    return bool(slash and _VERSION.fullmatch(top))


def _complaint(paths: Collection[str], kind: SourceKind | None) -> str:
    tops = {path.partition("/")[0] + ("/" if "/" in path else "") for path in paths}
    listed = ", ".join(f"'{name}'" for name in sorted(tops)[:_MOST_LISTED])
    more = f" and {len(tops) - _MOST_LISTED} more" if len(tops) > _MOST_LISTED else ""
    accepted = {
        SourceKind.MODEL: f"a model folder has {CONFIG_NAME} or version folders '1/', '2/'",
        SourceKind.VERSION: f"a version's files are model.onnx, model.pt2, {MODEL_PY} or the like, "
        f"with neither {CONFIG_NAME} nor version folders",
        SourceKind.CHECKPOINT: "a checkpoint has config.json and *.safetensors",
    }
    foreign = foreign_weights([path for path in paths if "/" not in path])
    wants = foreign or "; ".join(accepted[shape] for shape in ([kind] if kind else SourceKind))
    return f"not {kind.value if kind else 'a model'}: found {listed or 'nothing'}{more}; {wants}"
