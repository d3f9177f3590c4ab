"""The blocking part of a load, on a loading thread: instances, signature, labels, warm-up.

Called by `server.fleet.loading`, which gives the parts a scheduler on the event loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backends.errors import LoadFailed
from backends.loading import load
from backends.registry import runtime_of
from backends.seam import Device, Instance, Loaded
from repository.findings import reason
from repository.model import ModelVersion
from repository.normalise import normalise, validate_complete
from server.fleet.placement import Placement
from server.fleet.warmup import warm
from server.signature import Signature, compile_signature

if TYPE_CHECKING:
    from schedulers.llm.language import Language

MAX_LABEL_BYTES = 16 << 20


class Parts(NamedTuple):
    """A loaded and warmed version without a scheduler; `devices[i]` is where `instances[i]` is.

    `language`: of a language model, whose instances are engines."""

    version: ModelVersion
    signature: Signature
    instances: list[Instance]
    devices: list[Device]
    language: "Language | None" = None


def prepare(version: ModelVersion, placements: Sequence[Placement]) -> Parts:
    """Load `version` where `placements` say; blocks. Raises LoadFailed; nothing is left behind."""
    labels = read_labels(version)
    steps = runtime_of(version.config.backend).steps
    language = _language(version) if steps else None
    instances: list[Instance] = []
    devices: list[Device] = []
    try:
        for device, count in placements:
            loaded = (
                _load_engines(version, device, count) if steps else load(version, device, count)
            )
            instances += loaded.instances
            devices += [device] * len(loaded.instances)
            version = replace(version, config=normalise(loaded.config))
        _check_complete(version)
        signature = compile_signature(version.config, version.number, labels)
        for instance in instances:
            warm(version, signature, instance)
    except BaseException:
        close_all(instances)
        raise
    return Parts(version, signature, instances, devices, language)


def _language(version: ModelVersion) -> "Language":
    from schedulers.llm.language import read_language  # its tokeniser is an extra

    return read_language(version)


def _load_engines(version: ModelVersion, device: Device, count: int) -> Loaded:
    from schedulers.llm.instance import start_engine

    return load(version, device, count, start_engine)


def close_all(instances: Iterable[Instance]) -> None:
    for instance in instances:
        instance.close()


def _check_complete(version: ModelVersion) -> None:
    """A python model completes its own config while loading, behind the checker's back."""
    findings = validate_complete(version.config)
    if findings:
        raise LoadFailed(
            f"model '{version.name}' version {version.number} has an unusable config: "
            + reason(findings)
        )


def read_labels(version: ModelVersion) -> dict[str, tuple[str, ...]]:
    """The lines of every output's `label_filename`, by output name.

    Raises LoadFailed naming the file when it is missing, too large, not UTF-8, or not the
    model's own.
    """
    return {
        output.name: _read_lines(version, output.name, output.label_filename)
        for output in version.config.output
        if output.label_filename
    }


def _read_lines(version: ModelVersion, output: str, name: str) -> tuple[str, ...]:
    where = (
        f"model '{version.name}' version {version.number}: label_filename '{name}' "
        f"of output '{output}'"
    )
    path = _inside(version.folder, name)
    if path is None:
        raise LoadFailed(f"{where} leads out of the model's folder")
    try:
        size = path.stat().st_size
        if size > MAX_LABEL_BYTES:
            raise LoadFailed(f"{where} has {size} bytes, at most {MAX_LABEL_BYTES} are read")
        return tuple(path.read_text("utf-8").splitlines())
    except OSError as error:
        raise LoadFailed(
            f"{where} cannot be read from the model's folder: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise LoadFailed(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from error


def _inside(folder: Path, name: str) -> Path | None:
    path = folder / name
    return path if path.resolve().is_relative_to(folder.resolve()) else None
