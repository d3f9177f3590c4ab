"""The blocking part of a load, on a loading thread: instances, signature, labels, warm-up.

Called by `server.fleet.loading`, which gives the parts a scheduler on the event loop.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backends.errors import LoadFailed
from backends.limits import execution_limit, memory_limit
from backends.llm.load_phases import LoadPhase
from backends.loading import Start, load
from backends.process.call_link import CallService
from backends.process.instance import HostedInstance
from backends.process.interpreter import Interpreter
from backends.process.worker_process import WORKER
from backends.registry import runtime_of
from backends.seam import Device, Instance
from repository.config.normalise import normalise, validate_complete
from repository.files.plain_files import open_plain
from repository.findings import reason
from repository.model import ModelVersion
from repository.sandbox.confinement import Confinement
from server.fleet.placement import Placement, with_groups
from server.fleet.warmup import warm
from server.signature import Signature, compile_signature

if TYPE_CHECKING:
    from schedulers.llm.gateway.language import Language

MAX_LABEL_BYTES = 16 << 20


class PreparedVersion(NamedTuple):
    """A loaded and warmed version without a scheduler; `devices[i]` is where `instances[i]` is.

    `names`: theirs. `language`: of a language model, whose instances are engines."""

    version: ModelVersion
    signature: Signature
    instances: list[Instance]
    devices: list[Device]
    names: list[str]
    language: "Language | None" = None

    @property
    def load_phases(self) -> tuple[LoadPhase, ...]:
        """Of the first engine, whose module is an extra; empty where there is none."""
        opened = [one.opened for one in self.instances if hasattr(one, "opened")]
        return tuple(opened[0].phases) if opened else ()


class Timeouts(NamedTuple):
    """Seconds that a load may take, and that an execution may go on without progress (0: any)."""

    load: float
    execute: float


def prepare(
    version: ModelVersion,
    placements: Sequence[Placement],
    timeouts: Timeouts,
    confinement: Confinement | None = None,
    calls: CallService | None = None,
    interpreter: Interpreter | None = None,
) -> PreparedVersion:
    """Load `version`, whose instance groups are resolved, where `placements` say; blocks.
    `confinement`: of its workers. `calls`: answers what its scripts ask of the server.
    `interpreter`: what its workers run on, None for the server's own Python.

    Worker processes that hang are ended at the timeouts; so this returns soon after them.
    Raises LoadFailed; nothing is left behind.
    """
    start = _start_of(version, timeouts, confinement, calls, interpreter)
    labels = read_labels(version)
    steps = runtime_of(version.config.backend).steps
    language = read_text_side(version) if steps else None
    instances: list[Instance] = []
    devices: list[Device] = []
    try:
        for device, names in placements:
            loaded = load(version, device, names, start)
            instances += loaded.instances
            devices += [device] * len(loaded.instances)
            completed = with_groups(normalise(loaded.config), version.config)
            version = replace(version, config=completed)
        _check_complete(version)
        signature = compile_signature(version.config, version.number, labels)
        with _closed_after(timeouts.load, instances):
            for instance in instances:
                warm(version, signature, instance)
    except BaseException:
        close_all(instances)
        raise
    every = [name for placement in placements for name in placement.names]
    return PreparedVersion(version, signature, instances, devices, every, language)


def read_text_side(version: ModelVersion) -> "Language":
    from schedulers.llm.gateway.language import read_language  # its tokeniser is an extra

    return read_language(version)


def _start_of(
    version: ModelVersion,
    timeouts: Timeouts,
    confinement: Confinement | None,
    calls: CallService | None,
    interpreter: Interpreter | None,
) -> Start:
    if runtime_of(version.config.backend).steps:
        from schedulers.llm.gateway.instance import start_engine  # what it reads with is an extra

        secs = timeouts.load
        return partial(start_engine, load_timeout_secs=secs, confinement=confinement)
    return partial(
        HostedInstance,
        load_timeout_secs=timeouts.load,
        limit=execution_limit(version, timeouts.execute),
        program=WORKER._replace(
            confinement=confinement,
            calls=calls if version.config.backend == "python" else None,
            memory=memory_limit(version, confinement.memory_bytes if confinement else 0),
            interpreter=interpreter,
        ),
    )


@contextmanager
def _closed_after(secs: float, instances: Sequence[Instance]) -> Iterator[None]:
    """End the workers if the block takes longer: a warm-up that hangs must not outlive its load."""
    hosted = [one for one in instances if isinstance(one, HostedInstance)]
    timer = threading.Timer(secs, close_all, (hosted,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
        with open(open_plain(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_LABEL_BYTES:
                raise LoadFailed(f"{where} has {size} bytes, at most {MAX_LABEL_BYTES} are read")
            return tuple(file.read(MAX_LABEL_BYTES).decode().splitlines())
    except OSError as error:
        raise LoadFailed(
            f"{where} cannot be read from the model's folder: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise LoadFailed(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from error


def _inside(folder: Path, name: str) -> Path | None:
    path = folder / name
    return path if path.resolve().is_relative_to(folder.resolve()) else None
