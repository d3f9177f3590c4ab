"""Complete one version's config from its artefact; as a program, do so for
`server.fleet.checks.check`, and tell what code it would run.

`python -m server.fleet.checks.check_version` answers length-prefixed msgpack questions from stdin
on stdout. It reads artefacts and executes none of them.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgpack

from backends.code_formats import code_uses
from backends.errors import BackendError, LoadFailed
from backends.registry import PLATFORMS, backend_of
from repository.code_use import CodeUse
from repository.config.normalise import normalise, validate_complete
from repository.errors import RepositoryError
from repository.findings import reason
from repository.folders.foreign_weights import foreign_weights
from repository.model import ModelConfig, ModelVersion

FILES: dict[str, str] = {
    "model.onnx": "onnxruntime",
    "model.pt2": "pytorch",
    "model.pt": "pytorch",
    "model.py": "python",
    "config.json": "llm",
}
"""File in a version folder → the backend that serves it when config.pbtxt names none; a
config.json is a Hugging Face checkpoint's."""

LENGTH = struct.Struct("<I")
GRACE_S = 5
"""What is added to a deadline before a process that should have ended is made to."""
MEMORY_BYTES, MEMORY_BYTES_PER_CORE, MEMORY_PER_BYTE = 4 << 30, 64 << 20, 8
"""What a check may take (RLIMIT_DATA): a base, buffers that libraries reserve for each core, and
eight times the largest file. An honest ONNX file takes 70 MB and twice its size; one of empty
nodes takes 80 times its size."""
_NICENESS = 5  # a check competes with serving for the same cores


class ConfigCompletion(NamedTuple):
    """How much of a config is filled in: nothing if not `fill`, and the `max_batch_size` of a
    model that can batch and whose config does not say (Triton's default is 4)."""

    fill: bool = True
    default_max_batch: int = 4


LIKE_TRITON = ConfigCompletion()


class CheckKind(StrEnum):
    """What is asked of a version."""

    CONFIG = "config"
    CODE = "code"


def complete_version(version: ModelVersion, rules: ConfigCompletion = LIKE_TRITON) -> ModelConfig:
    """The config the version is served with: backend found, artefact read, defaults filled in.

    A python model completes its own config when it loads, so that only its backend is settled
    here. Raises LoadFailed naming what contradicts what, and what would be accepted.
    """
    backend = backend_name(version)
    completed = backend_of(backend).complete(version, rules.default_max_batch)
    completed = normalise(completed if rules.fill else _as_written(version, backend))
    findings = [] if backend == "python" else validate_complete(completed)
    if findings:
        raise LoadFailed(f"{where(version)}: {reason(findings)}")
    return completed


def _as_written(version: ModelVersion, backend: str) -> ModelConfig:
    config = ModelConfig()
    config.CopyFrom(version.config)
    config.backend = backend
    config.ClearField("platform")
    return config


def backend_name(version: ModelVersion) -> str:
    """What config.pbtxt names, else what the files in the version's folder tell."""
    config = version.config
    if config.backend:
        return str(config.backend)
    if config.platform:
        if config.platform not in PLATFORMS:
            known = ", ".join(PLATFORMS)
            raise LoadFailed(
                f"{where(version)}: unknown platform '{config.platform}'; "
                f"known are {known}, or name a backend instead"
            )
        return PLATFORMS[config.platform]
    written = Path(config.default_model_filename).suffix
    for name, backend in FILES.items():
        if written == Path(name).suffix or (not written and (version.path / name).exists()):
            return backend
    names = sorted(entry.name for entry in version.path.iterdir())
    foreign = foreign_weights(names)
    if foreign:
        raise LoadFailed(f"{where(version)}: {foreign}")
    found = ", ".join(names) or "nothing"
    raise LoadFailed(
        f"{where(version)}: no backend can be inferred from its folder, which holds {found}; "
        f"put one of {', '.join(FILES)} there, or name a backend in config.pbtxt"
    )


def code_of(version: ModelVersion) -> tuple[CodeUse, ...]:
    """The code that serving the version would run. Raises OSError."""
    try:
        return code_uses(version, backend_name(version))
    except LoadFailed:  # it cannot be loaded either; the load itself tells why
        return ()


def where(version: ModelVersion) -> str:
    """How every message about a version begins."""
    return f"model '{version.name}' version {version.number}"


# the child


def memory_limit(version: ModelVersion, base_bytes: int, machine_bytes: int) -> int:
    """Bytes of memory that the check of a version may take; `machine_bytes`: 0 if not known."""
    largest = 0
    for folder, _folders, names in os.walk(version.path):
        for name in names:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
    cores = MEMORY_BYTES_PER_CORE * (os.cpu_count() or 1)
    limit = base_bytes + cores + MEMORY_PER_BYTE * largest
    return min(limit, machine_bytes) if machine_bytes else limit


def main() -> None:
    """Answer questions from stdin on stdout until stdin closes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    # What a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := sys.stdin.buffer.read(LENGTH.size):
        (length,) = LENGTH.unpack(header)
        _answer(msgpack.unpackb(sys.stdin.buffer.read(length)), answers)


def _answer(question: dict[str, Any], answers: BinaryIO) -> None:
    # Should the parent be gone, nobody else ends a check that never returns.
    signal.alarm(ceil(question.pop("deadline_s")) + GRACE_S)
    rules = ConfigCompletion(*question["rules"])
    version = ModelVersion(
        name=question["name"],
        number=question["number"],
        folder=Path(question["folder"]),
        path=Path(question["path"]),
        config=ModelConfig.FromString(question["config"]),
        digest=question["digest"],
    )
    limit = memory_limit(version, question["memory_bytes"], question["machine_bytes"])
    try:
        with _memory_limited(limit):
            answer: dict[str, Any]
            if question["asked"] == CheckKind.CODE:
                answer = {"uses": [list(use) for use in code_of(version)]}
            else:
                answer = {"config": complete_version(version, rules).SerializeToString()}
    except (BackendError, RepositoryError, OSError) as error:
        answer = {"error": f"{error}{_memory_taken(limit)}"}
    except MemoryError:
        answer = {"error": f"{where(version)}: out of memory{_memory_taken(limit)}"}
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        _send(answers, {"bug": f"{where(version)}: checking it failed ({cause}). This is a bug."})
        raise
    _send(answers, answer)
    signal.alarm(0)


@contextmanager
def _memory_limited(limit: int) -> Iterator[None]:
    """Inside, allocations beyond `limit` bytes fail."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _memory_taken(limit: int) -> str:
    """A hint for an error that may come from the limit; libraries name other reasons. They double
    what they have, so that an allocation fails well below it."""
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if taken < limit // 4:
        return ""
    return (
        f" (checking took {taken} bytes of memory, and may take {limit}: 4 GiB and 8 times its "
        "largest file, or the machine's memory where that is less)"
    )


def _send(answers: BinaryIO, answer: dict[str, Any]) -> None:
    packed = msgpack.packb(answer)
    try:
        answers.write(LENGTH.pack(len(packed)) + packed)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)  # the parent was killed; nobody is left to be answered


if __name__ == "__main__":
    main()
