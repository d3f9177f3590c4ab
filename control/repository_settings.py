"""What a git repository accepts: formats, protected refs, budgets, signatures, connections of its
models. Pure."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import msgspec

from control.errors import Invalid
from control.text import stored_json
from repository.git.names import ref_problem

MIB, GIB = 2**20, 2**30
MOST_GLOBS, MOST_KEYS, MOST_KEY_CHARACTERS = 100, 100, 16_384

SAFE_FORMATS: dict[str, tuple[str, ...]] = {
    "onnx": (".onnx", ".onnx_data", ".onnx.data"),
    "safetensors": (".safetensors",),
    "torch_exported": (".pt2",),
    "booster": (".json", ".ubj"),
    "config": (".pbtxt", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".sig"),
    "labels": (".txt", ".csv", ".tsv"),
    "text": (".txt", ".md", ".rst", ".jinja"),
}
"""Formats that are read, never executed: name → endings of its files."""

RISKY_FORMATS: dict[str, tuple[str, ...]] = {
    "torch": (".pt", ".pth", ".bin"),
    "torchscript": (".pt", ".ts"),
    "pickle": (".pkl", ".pickle", ".joblib"),
    "python": (".py",),
    "native_library": (".so", ".dll", ".dylib"),
}
"""Formats that can bring code with them: only where an administrator has put them on the list."""

FORMATS = {**SAFE_FORMATS, **RISKY_FORMATS}

HIDDEN_ALLOWED = frozenset((".gitattributes", ".gitignore", ".gitkeep", ".lfsconfig"))
"""Hidden files that git itself reads; nothing of ours does."""

_GLOB = re.compile(r"refs/(?:heads|tags)/[^\s\x00-\x1f\x7f]{1,200}")
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----\n[A-Za-z0-9+/=\n]+-----END \1-----\n?")


class Signing(StrEnum):
    """What becomes of a version without a good signature."""

    OFF = "off"
    WARN = "warn"
    REQUIRE = "require"


class PushBudgets(msgspec.Struct, frozen=True):
    """The most one push may bring; file limits are per file and per tree of a commit."""

    max_pack_bytes: int = 2 * GIB
    max_file_bytes: int = 100 * MIB
    max_lfs_bytes: int = 20 * GIB
    max_files: int = 10_000
    max_models: int = 1_000


class RepositorySettings(msgspec.Struct, frozen=True):
    """`protected`: globs of refs that are neither deleted nor rewritten; None for the deploy ref
    alone. `max_file_bytes` is for files outside Git LFS, `trusted_keys` are public keys in PEM.
    `network`: whether python models that ask for it may open connections."""

    deploy_ref: str = "refs/heads/main"
    formats: tuple[str, ...] = tuple(SAFE_FORMATS)
    protected: tuple[str, ...] | None = None
    budgets: PushBudgets = PushBudgets()
    signing: Signing = Signing.OFF
    trusted_keys: tuple[str, ...] = ()
    network: bool = False

    @property
    def protected_refs(self) -> tuple[str, ...]:
        return (self.deploy_ref,) if self.protected is None else self.protected

    def as_json(self) -> dict[str, Any]:
        """As the tables and the audit keep it."""
        found: dict[str, Any] = stored_json(self)
        return found


def parse_settings(
    raw: Mapping[str, Any], base: RepositorySettings | None = None
) -> RepositorySettings:
    """`base` (the defaults) with what `raw` says instead. Raises Invalid naming the field."""
    _known(raw, RepositorySettings, "")
    said = dict(raw)
    now = base or RepositorySettings()
    if "budgets" in said:
        said["budgets"] = _budgets(said["budgets"], now.budgets)
    taken = {name: _TAKEN[name](value) for name, value in said.items()}
    made = msgspec.structs.replace(now, **taken)
    if made.signing == Signing.REQUIRE and not made.trusted_keys:
        raise Invalid("signing 'require' needs a key in trusted_keys", "trusted_keys")
    return made


def stored_settings(raw: Mapping[str, Any]) -> RepositorySettings:
    """Settings as a row has them; what a later build has added is left out."""
    kept = {name: raw[name] for name in RepositorySettings.__struct_fields__ if name in raw}
    budgets = kept.get("budgets", {})
    kept["budgets"] = {k: budgets[k] for k in PushBudgets.__struct_fields__ if k in budgets}
    return parse_settings(kept)


def formats_of(file_name: str) -> tuple[str, ...]:
    """The formats a file may be of, by the ending of its name; empty when no format has it."""
    name = PurePosixPath(file_name).name.lower()
    return tuple(kind for kind, endings in FORMATS.items() if name.endswith(endings))


def _known(raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str) -> None:
    names = kind.__struct_fields__
    for name in raw:
        if name not in names:
            raise Invalid(
                f"settings have no '{prefix}{name}'; they have {', '.join(names)}",
                f"{prefix}{name}"[:200],
            )


def _budgets(raw: Any, base: PushBudgets) -> PushBudgets:
    if not isinstance(raw, Mapping):
        raise Invalid(f"budgets must be a map of numbers, got {raw!r:.80}", "budgets")
    _known(raw, PushBudgets, "budgets.")
    for name, value in raw.items():
        if type(value) is not int or not 1 <= value < 2**50:
            raise Invalid(
                f"budgets.{name} must be a whole number of at least 1, got {value!r:.80}",
                f"budgets.{name}",
            )
    return msgspec.structs.replace(base, **raw)


def _deploy_ref(value: Any) -> str:
    if not isinstance(value, str):
        raise Invalid(f"deploy_ref must be text, got {value!r:.80}", "deploy_ref")
    if problem := ref_problem(value):
        raise Invalid(f"'{value:.250}' cannot be the deploy_ref: {problem}", "deploy_ref")
    return value


def _formats(value: Any) -> tuple[str, ...]:
    names = _texts("formats", value, len(FORMATS))
    for name in names:
        if name not in FORMATS:
            raise Invalid(
                f"there is no format '{name:.80}'; there are {', '.join(FORMATS)}", "formats"
            )
    return names


def _protected(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    globs = _texts("protected", value, MOST_GLOBS)
    for glob in globs:
        if not _GLOB.fullmatch(glob):
            raise Invalid(
                f"'{glob:.80}' protects no ref; give globs such as refs/heads/release-*",
                "protected",
            )
    return globs


def _signing(value: Any) -> Signing:
    if value not in tuple(Signing):
        raise Invalid(f"signing must be {', '.join(Signing)}, got {value!r:.80}", "signing")
    return Signing(value)


def _network(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"network must be true or false, got {value!r:.80}", "network")
    return value


def _trusted_keys(value: Any) -> tuple[str, ...]:
    keys = _texts("trusted_keys", value, MOST_KEYS)
    for number, key in enumerate(keys, 1):
        found = _PEM.fullmatch(key.replace("\r\n", "\n").strip() + "\n")
        if found is None or "PRIVATE" in found[1]:
            raise Invalid(
                f"trusted_keys: number {number} is no public key or certificate in PEM",
                "trusted_keys",
            )
    return keys


def _texts(name: str, value: Any, most: int) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise Invalid(f"{name} must be a list of texts, got {value!r:.80}", name)
    if len(value) > most or any(len(one) > MOST_KEY_CHARACTERS for one in value):
        raise Invalid(f"{name} may have {most} entries at most, got {len(value)}", name)
    return tuple(dict.fromkeys(value))


_TAKEN: dict[str, Callable[[Any], Any]] = {
    "deploy_ref": _deploy_ref,
    "formats": _formats,
    "protected": _protected,
    "budgets": lambda budgets: budgets,
    "signing": _signing,
    "trusted_keys": _trusted_keys,
    "network": _network,
}
