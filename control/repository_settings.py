"""What a git repository accepts: formats, protected refs, budgets, signatures, connections of its
models. Pure."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from control.errors import Invalid
from control.message_faults import Fault, fault_in
from control.text import stored_json
from repository.git.names import ref_problem

MIB, GIB = 2**20, 2**30
MOST_GLOBS, MOST_KEYS, MOST_KEY_CHARACTERS = 100, 100, 16_384

SAFE_FORMATS: dict[str, tuple[str, ...]] = {
    "onnx": (".onnx", ".onnx_data", ".onnx.data"),
    "safetensors": (".safetensors",),
    "torch_exported": (".pt2",),
    "openvino": (".xml", "model.bin", "openvino_model.bin"),
    "litert": (".tflite",),
    "ncnn": (".param", "model.bin", "model.ncnn.bin"),
    "mnn": (".mnn",),
    "booster": (".json", ".ubj"),
    "config": (".pbtxt", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".sig"),
    "labels": (".txt", ".csv", ".tsv"),
    "arrays": (".npz",),
    "text": (".txt", ".md", ".rst", ".jinja"),
}
"""Formats that are read, never executed: name → endings of its files, or whole names."""

RISKY_FORMATS: dict[str, tuple[str, ...]] = {
    "torch": (".pt", ".pth", ".bin"),
    "torchscript": (".pt", ".ts"),
    "pickle": (".pkl", ".pickle", ".joblib"),
    "python": (".py",),
    "native_library": (".so", ".dll", ".dylib"),
    "python_environment": (".tar.gz", ".tgz", ".tar"),
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


Budget = Annotated[int, Meta(ge=1, lt=2**50)]


class PushBudgets(msgspec.Struct, frozen=True):
    """The most one push may bring; file limits are per file and per tree of a commit."""

    max_pack_bytes: Budget = 2 * GIB
    max_file_bytes: Budget = 100 * MIB
    max_lfs_bytes: Budget = 20 * GIB
    max_files: Budget = 10_000
    max_models: Budget = 1_000


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
    _check_fields(raw, RepositorySettings, "")
    document = {**(base or RepositorySettings()).as_json(), **raw}
    if isinstance(budgets := raw.get("budgets"), Mapping):
        _check_fields(budgets, PushBudgets, "budgets.")
        document["budgets"] = msgspec.to_builtins(base.budgets if base else PushBudgets()) | budgets
    return stored_settings(document)


def stored_settings(document: Mapping[str, Any]) -> RepositorySettings:
    """Settings as a row has them; what a later build has added is left out. Raises Invalid."""
    try:
        made = msgspec.convert(document, RepositorySettings)
    except msgspec.ValidationError as error:
        raise _refused(document, fault_in(document, error)) from None
    if problem := ref_problem(made.deploy_ref):
        raise Invalid(f"'{made.deploy_ref:.250}' cannot be the deploy_ref: {problem}", "deploy_ref")
    if made.signing == Signing.REQUIRE and not made.trusted_keys:
        raise Invalid("signing 'require' needs a key in trusted_keys", "trusted_keys")
    return msgspec.structs.replace(
        made,
        formats=_formats(made.formats),
        protected=None if made.protected is None else _protected(made.protected),
        trusted_keys=_trusted_keys(made.trusted_keys),
    )


def formats_of(file_name: str) -> tuple[str, ...]:
    """The formats a file may be of, by its name or the ending of it; empty when no format has
    it."""
    name = PurePosixPath(file_name).name.lower()
    return tuple(
        kind
        for kind, taken in FORMATS.items()
        if any(name.endswith(one) if one.startswith(".") else name == one for one in taken)
    )


def _check_fields(raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str) -> None:
    names = kind.__struct_fields__
    for name in raw:
        if name not in names:
            raise Invalid(
                f"settings have no '{prefix}{name}'; they have {', '.join(names)}",
                f"{prefix}{name}"[:200],
            )


_KINDS = {
    "deploy_ref": "text",
    "formats": "a list of texts",
    "protected": "a list of texts",
    "budgets": "a map of numbers",
    "signing": ", ".join(Signing),
    "trusted_keys": "a list of texts",
    "network": "true or false",
}


def _refused(document: Mapping[str, Any], fault: Fault) -> Invalid:
    name = str(fault.path[0])
    if name == "budgets" and len(fault.path) > 1:
        name = f"budgets.{fault.path[1]}"
        return Invalid(
            f"{name} must be a whole number of at least 1, got {fault.value!r:.80}", name
        )
    return Invalid(f"{name} must be {_KINDS[name]}, got {document[name]!r:.80}", name)


def _formats(names: tuple[str, ...]) -> tuple[str, ...]:
    names = _distinct("formats", names, len(FORMATS))
    for name in names:
        if name not in FORMATS:
            raise Invalid(
                f"there is no format '{name:.80}'; there are {', '.join(FORMATS)}", "formats"
            )
    return names


def _protected(globs: tuple[str, ...]) -> tuple[str, ...]:
    globs = _distinct("protected", globs, MOST_GLOBS)
    for glob in globs:
        if not _GLOB.fullmatch(glob):
            raise Invalid(
                f"'{glob:.80}' protects no ref; give globs such as refs/heads/release-*",
                "protected",
            )
    return globs


def _trusted_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    keys = _distinct("trusted_keys", keys, MOST_KEYS)
    for number, key in enumerate(keys, 1):
        found = _PEM.fullmatch(key.replace("\r\n", "\n").strip() + "\n")
        if found is None or "PRIVATE" in found[1]:
            raise Invalid(
                f"trusted_keys: number {number} is no public key or certificate in PEM",
                "trusted_keys",
            )
    return keys


def _distinct(name: str, texts: tuple[str, ...], most: int) -> tuple[str, ...]:
    if len(texts) > most or any(len(one) > MOST_KEY_CHARACTERS for one in texts):
        raise Invalid(f"{name} may have {most} entries at most, got {len(texts)}", name)
    return tuple(dict.fromkeys(texts))
