"""Complete one version's config from its artefact; as a child process, do so for
`server.fleet.checks.check`, and tell what code it would run.

It reads artefacts and executes none of them.
"""

import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path

from backends.code_formats import code_uses
from backends.errors import BackendError, LoadFailed
from backends.registry import ENSEMBLE, PLATFORMS, backend_of, require_packages
from backends.sequences.loading import complete
from repository.code_use import CodeUse
from repository.config.normalise import normalise, validate_complete
from repository.errors import RepositoryError
from repository.findings import reason
from repository.folders.foreign_weights import foreign_weights
from repository.formats import unserved_reason
from repository.model import ModelConfig, ModelVersion
from repository.process.parent import connect
from server.fleet.checks.check_messages import (
    CheckAnswer,
    CheckKind,
    CheckRefused,
    CheckRequest,
    CodeFound,
    CompletedConfig,
    ConfigCompletion,
    decode_request,
    encode,
)

FILES: dict[str, str] = {
    "model.onnx": "onnxruntime",
    "model.pt2": "pytorch",
    "model.pt": "pytorch",
    "model.py": "python",
    "config.json": "llm",
    "model.xml": "openvino",
    "model.tflite": "litert",
    "model.param": "ncnn",
    "model.mnn": "mnn",
    "model.ubj": "xgboost",
    "model.json": "xgboost",
    "model.txt": "lightgbm",
}
"""File in a version folder → the backend that serves it when config.pbtxt names none; a
config.json is a Hugging Face checkpoint's."""

GRACE_S = 5
"""What is added to a deadline before a process that should have ended is made to."""
MEMORY_BYTES, MEMORY_BYTES_PER_CORE, MEMORY_PER_BYTE = 4 << 30, 64 << 20, 8
"""What a check may take (RLIMIT_DATA): a base, buffers that libraries reserve for each core, and
eight times the largest file. An honest ONNX file takes 70 MB and twice its size; one of empty
nodes takes 80 times its size."""
_log = logging.getLogger(__name__)
_NICENESS = 5  # a check competes with serving for the same cores


LIKE_TRITON = ConfigCompletion()


def complete_version(version: ModelVersion, rules: ConfigCompletion = LIKE_TRITON) -> ModelConfig:
    """The config the version is served with: backend found, artefact read, defaults filled in.

    A python model completes its own config when it loads, so that only its backend is settled
    here. Raises LoadFailed naming what contradicts what, and what would be accepted.
    """
    if version.config.platform == ENSEMBLE:
        return _ensemble(version)
    backend = backend_name(version)
    _require_packages(version, backend)
    completed = complete(backend_of(backend), version, rules.default_max_batch)
    completed = normalise(completed if rules.fill else _as_written(version, backend))
    findings = [] if backend == "python" else validate_complete(completed)
    if findings:
        raise LoadFailed(f"{where(version)}: {reason(findings)}")
    return completed


def _ensemble(version: ModelVersion) -> ModelConfig:
    """It has no artefact; its steps' models are looked at when it is loaded."""
    completed = normalise(version.config)
    completed.name = completed.name or version.name
    if findings := validate_complete(completed):
        raise LoadFailed(f"{where(version)}: {reason(findings)}")
    return completed


def _require_packages(version: ModelVersion, backend: str) -> None:
    try:
        require_packages(backend)
    except LoadFailed as error:
        raise LoadFailed(f"{where(version)}: {error}") from None


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
            platforms = ", ".join([*PLATFORMS, ENSEMBLE])
            raise LoadFailed(
                f"{where(version)}: unknown platform '{config.platform}'; "
                f"known are {platforms}, or name a backend instead"
            )
        return PLATFORMS[config.platform]
    written = Path(config.default_model_filename).suffix
    for name, backend in FILES.items():
        if written == Path(name).suffix or (not written and (version.path / name).exists()):
            return backend
    names = sorted(entry.name for entry in version.path.iterdir())
    foreign = foreign_weights(names) or unserved_reason(names)
    if foreign:
        raise LoadFailed(f"{where(version)}: {foreign}")
    found = ", ".join(names) or "nothing"
    raise LoadFailed(
        f"{where(version)}: no backend can be inferred from its folder, which holds {found}; "
        f"put one of {', '.join(FILES)} there, or name a backend in config.pbtxt"
    )


def code_of(version: ModelVersion) -> tuple[CodeUse, ...]:
    """The code that serving the version would run. Raises OSError."""
    if version.config.platform == ENSEMBLE:
        return ()
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


def main(channel_fd: int, parent_pid: int) -> None:
    """Answer the parent's requests until it hangs up."""
    channel = connect(channel_fd, parent_pid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    with suppress(EOFError, OSError):
        while True:
            channel.send(encode(_answer(decode_request(channel.receive().payload))))


def _answer(request: CheckRequest) -> CheckAnswer:
    # A check that never returns ends this way, whatever becomes of the parent.
    signal.alarm(ceil(request.deadline_s) + GRACE_S)
    version = request.version
    limit = memory_limit(version, request.memory_bytes, request.machine_bytes)
    try:
        with _memory_limited(limit):
            return _looked_at(version, request)
    except (BackendError, RepositoryError, OSError) as error:
        return CheckRefused(f"{error}{_memory_taken(limit)}")
    except MemoryError:
        return CheckRefused(f"{where(version)}: out of memory{_memory_taken(limit)}")
    except Exception as error:  # noqa: BLE001 (libraries raise anything)
        _log.exception("checking %s failed", where(version))
        cause = f"{type(error).__name__}: {error}"
        reason = f"{where(version)}: checking it failed ({cause}). This is a bug."
        return CheckRefused(reason, is_bug=True)
    finally:
        signal.alarm(0)


def _looked_at(version: ModelVersion, request: CheckRequest) -> CheckAnswer:
    if request.kind == CheckKind.CODE:
        return CodeFound(code_of(version))
    return CompletedConfig(complete_version(version, request.rules).SerializeToString())


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
