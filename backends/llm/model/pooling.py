"""One vector of a text's rows: which kind of pooling a checkpoint asks for, and the pooling itself.

Read from the layout of sentence-transformers: `modules.json` and the pooling module's config.json.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from backends.llm.config.fields import read_fields
from backends.llm.errors import BadCheckpoint

PoolingKind = Literal["mean", "cls", "last"]
KINDS: tuple[PoolingKind, ...] = get_args(PoolingKind)
MODULES = "modules.json"
MAX_MODULES = 16
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """The mean of a text's rows, its first or its last one; `normalise`: made one unit long."""

    kind: PoolingKind
    normalise: bool = True


def read_pooling(folder: Path) -> Pooling | None:
    """What the checkpoint says; None where it says nothing.

    Raises BadCheckpoint naming the file and field.
    """
    if not (folder / MODULES).is_file():
        return None
    kind: PoolingKind | None = None
    normalise = False
    for name, path in _modules(folder):
        if name == "Pooling":
            kind = _kind(folder, path)
        elif name == "Normalize":
            normalise = True
        elif name != "Transformer":
            raise BadCheckpoint(
                f"{MODULES} has a module '{name:.80}'; supported are Transformer, Pooling and "
                "Normalize"
            )
    if kind is None:
        raise BadCheckpoint(f"{MODULES} has no Pooling module")
    return Pooling(kind, normalise)


def _modules(folder: Path) -> list[tuple[str, str]]:
    """The last part of each module's type, and its folder."""
    try:
        listed = json.loads((folder / MODULES).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{MODULES} cannot be read: {error}") from None
    if not isinstance(listed, list) or len(listed) > MAX_MODULES:
        raise BadCheckpoint(f"{MODULES} must be a list of at most {MAX_MODULES} modules")
    return [_module(one) for one in listed]


def _module(one: Any) -> tuple[str, str]:
    type_, path = (one.get("type"), one.get("path")) if isinstance(one, dict) else (None, None)
    if not isinstance(type_, str) or not isinstance(path, str):
        raise BadCheckpoint(f"{MODULES}: every module has a 'type' and a 'path', both strings")
    return type_.rpartition(".")[2], path


def _kind(folder: Path, path: str) -> PoolingKind:
    if path.startswith(".") or not path or Path(path).name != path:
        raise BadCheckpoint(f"{MODULES}: the Pooling's path is '{path:.80}'; it must be a folder")
    fields = read_fields(folder / path / "config.json")
    named = fields.values.get("pooling_mode")
    modes = [named] if named is not None else []
    modes += [mode for mode, on in fields.values.items() if _is_mode(mode) and on is True]
    kinds = [_MODES.get(str(mode), str(mode)) for mode in modes]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        raise BadCheckpoint(
            f"{path}/config.json pools by {', '.join(kinds)[:200] or 'nothing'}; supported is one "
            f"of {', '.join(KINDS)}"
        )
    return kinds[0]


def _is_mode(name: str) -> bool:
    return name.startswith("pooling_mode_")
