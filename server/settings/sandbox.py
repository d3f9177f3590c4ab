"""The settings of the worker sandbox. Part of `Settings`."""

from dataclasses import dataclass
from pathlib import Path

from server.settings.kinds import FILE, TEXT, choice, setting, whole
from server.settings.listeners import ListenerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings(ListenerSettings):
    """What the code of models may do to this machine; docs/sandbox.md has the whole of it."""

    worker_sandbox: str = setting(
        "Access",
        choice("strict", "default", "off"),
        "default",
        "What worker processes may do. default: read anything but the state folder, other models "
        "and the home folder, write to a folder of their own; strict: read only their own version "
        "and what they run on, and start no programs; off: all that this user may.",
    )
    worker_sandbox_allow_read: tuple[Path, ...] = setting(
        "Access",
        FILE,
        (),
        "A path that workers may read besides, such as a cache of models; repeat it for several.",
        note="none",
        repeat=True,
    )
    worker_sandbox_allow_write: tuple[Path, ...] = setting(
        "Access",
        FILE,
        (),
        "A folder that workers may read and write besides; repeat it for several.",
        note="none",
        repeat=True,
    )
    worker_sandbox_allow_env: tuple[str, ...] = setting(
        "Access",
        TEXT,
        (),
        "An environment variable that workers get although its name or value looks like a secret; "
        "repeat it for several.",
        note="none",
        repeat=True,
    )
    worker_memory_limit: int = setting(
        "Limits",
        whole(0, 2**50, "BYTES"),
        0,
        "Memory that a worker process of a python or pytorch model may take, with the processes it "
        "starts; beyond it the worker is killed and started again. 0 for no limit.",
    )
    worker_output_limit: int = setting(
        "Limits",
        whole(0, 2**50, "BYTES"),
        4 << 30,
        "Output tensors that a worker may give for one batch, or in one response of a decoupled "
        "model; more fails that batch's requests, or that response. 0 for no limit.",
    )
