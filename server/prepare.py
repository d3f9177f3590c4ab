"""The blocking part of a load, on a loading thread: instances, signature, labels, warm-up.

Called by `server.loading`, which gives the parts a scheduler on the event loop.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from backends.errors import LoadFailed
from backends.loading import load
from backends.seam import Device, Instance
from repository.findings import reason
from repository.model import ModelVersion
from repository.normalise import normalise, validate_complete
from server.placement import Placement
from server.signature import Signature, compile_signature
from server.warmup import warm

MAX_LABEL_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """A loaded and warmed version without a scheduler; `devices[i]` is where `instances[i]` is."""

    version: ModelVersion
    signature: Signature
    instances: list[Instance]
    devices: list[Device]


def prepare(version: ModelVersion, options: Sequence[Sequence[Placement]]) -> Parts:
    """Load `version` by the first of the placement `options` that works; blocks.

    Raises the last option's LoadFailed; nothing is left behind then.
    """
    for placements in options[:-1]:
        try:
            return _prepare(version, placements)
        except LoadFailed as error:
            _log.warning(
                "%s version %d cannot use the GPU, falling back to the CPU: %s",
                version.name,
                version.number,
                error,
            )
    return _prepare(version, options[-1])


def close_all(instances: Iterable[Instance]) -> None:
    for instance in instances:
        instance.close()


def _prepare(version: ModelVersion, placements: Sequence[Placement]) -> Parts:
    labels = read_labels(version)
    instances: list[Instance] = []
    devices: list[Device] = []
    try:
        for device, count in placements:
            loaded = load(version, device, count)
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
    return Parts(version, signature, instances, devices)


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
