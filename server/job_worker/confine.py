"""What the processes of jobs may do on this machine, as the settings say."""

import os
from pathlib import Path

from repository.sandbox.enter import kernel
from repository.sandbox.policy import Sandbox, SandboxEnvironment, parser_sandbox, report
from server.fleet.confine import home_secrets, linked_models, surroundings
from server.settings.table import Settings


def job_sandbox(
    settings: Settings, sockets: Path, readable: tuple[str, ...], writable: tuple[str, ...]
) -> Sandbox | None:
    """Of a job's process: no network, no secrets, no models and no data but those in `readable`;
    programs it may start, for tools are some. None where the sandbox is off."""
    around = surroundings(settings, sockets)
    if around.mode == "off":
        return None
    strict = around.mode == "strict"
    found = kernel()
    system = around.system if strict else ()
    return Sandbox(
        profile=around.mode,
        landlock_abi=found.landlock_abi,
        seccomp=found.seccomp,
        everywhere=not strict,
        hidden=_hidden(settings, around),
        readable=(*_real(readable), *around.runtime, *system, *around.allow_read),
        writable=(*_real(writable), *around.allow_write),
        network=False,
        unix_sockets=False,
        execute=True,
        leave_group=False,
        shared_memory=False,
        attributes=False,
    )


def sandbox_report(settings: Settings) -> str:
    """One line for the log: what is in force on this machine, and what its kernel lacks."""
    return report(settings.worker_sandbox, kernel())


def build_sandbox(
    settings: Settings,
    sockets: Path,
    folder: Path,
    readable: tuple[str, ...],
    programs: bool,
    network: bool,
) -> Sandbox | None:
    """Of a process that makes a tool's environment in `folder`; as for those of models."""
    around = surroundings(settings, sockets)
    if around.mode == "off":
        return None
    own = os.path.realpath(folder)
    base = parser_sandbox(
        kernel(),
        (*around.secrets, *around.repositories),
        (*around.runtime, *_real(readable), own),
        everywhere=True,
    )
    return base._replace(
        writable=(own,),
        network=network,
        execute=programs,
        fork=programs,
        attributes=True,  # compilers mark what they made as a program
    )


def _hidden(settings: Settings, around: SandboxEnvironment) -> tuple[str, ...]:
    linked = linked_models(settings.model_repository)
    data = _real(tuple(map(str, settings.job_data_dir)))
    return (*around.secrets, *home_secrets(), *around.repositories, *linked, *data)


def _real(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, paths))
