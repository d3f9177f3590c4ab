"""Enter a sandbox: what `repository.sandbox.policy` decided, done to this process.

Must happen in the main thread while there is no other (numpy starts threads when it is imported):
Landlock holds for the thread that asked for it and for what it starts. Hence this module, and those
it imports, need nothing but the standard library.
"""

import json
import os
import sys
from collections.abc import Iterator

from repository.sandbox import landlock, privileges
from repository.sandbox.calls import AllowedCalls
from repository.sandbox.peer import OF_PARSER, OF_WORKER
from repository.sandbox.policy import Kernel, Sandbox, visible

VARIABLE = "MODELYARD_SANDBOX"
FAILED_STATUS = 78
"""A process that cannot confine itself as it was told ends with this, and has run nothing else."""

_STREAMS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED_MEMORY = "/dev/shm"
_OWN_THREADS = "/proc/self/task"
"""A process names another of its threads by writing into TID/comm there. CUDA does so when it is
initialised, and else gives up with error 304. Landlock's rules are for folders, and the threads are
yet to begin, so that this one covers the other files of a thread too: oom_score_adj, mem, uid_map.
It is of the process that enters alone: another one's folder has another inode."""
_DEVICES = ("nvidia", "dri", "kfd", "infiniband", "accel")
"""Beginnings of the names below /dev of what computes. Disks, memory and terminals, in which people
type their passwords, are not among them."""


def variables(sandbox: Sandbox | None) -> dict[str, str]:
    """For the environment of a process that calls `enter_from_environment` first of all."""
    return {} if sandbox is None else {VARIABLE: json.dumps(sandbox)}


def enter_from_environment() -> None:
    """Enter the sandbox that the environment tells of, if any; or end the process."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return
    try:
        _entered.append(sandbox_from(json.loads(text)))
        enter(_entered[-1])
    except OSError as error:
        sys.stderr.write(f"the sandbox cannot be entered: {error}; see --worker-sandbox\n")
        sys.stderr.flush()
        os._exit(FAILED_STATUS)


def sandbox_from(values: list[object]) -> Sandbox:
    """As JSON brought it."""
    return Sandbox(*(tuple(one) if isinstance(one, list) else one for one in values))  # type: ignore[arg-type]


def kernel() -> Kernel:
    """What the running kernel can do."""
    if sys.platform != "linux":
        return Kernel(0, seccomp=False, linux=False)
    return Kernel(landlock.abi(), privileges.seccomp_available(os.uname().machine))


def enter(sandbox: Sandbox) -> None:
    """From here on this process, and whatever it starts, may do what `sandbox` says. OSError."""
    if sys.platform != "linux":
        return
    privileges.set_limits(OF_PARSER if sandbox.profile == "parser" else OF_WORKER)
    privileges.drop_privileges()
    if sandbox.landlock_abi:
        _confine_files(sandbox)
    if sandbox.seccomp:
        privileges.filter_calls(_calls_of(sandbox))


_entered: list[Sandbox] = []


def entered() -> Sandbox | None:
    """The one that this process entered last, if any."""
    return _entered[-1] if _entered else None


def is_strict() -> bool:
    """Whether this process entered a sandbox of the profile "strict"."""
    return any(one.profile == "strict" for one in _entered)


def forbid_programs() -> None:
    """From here on start no other programs, on any thread, if this process entered a sandbox."""
    for one in _entered:
        if one.seccomp:
            allowed = AllowedCalls(one.network, one.unix_sockets, execute=False)
            privileges.filter_calls(allowed, all_threads=True)


def _calls_of(sandbox: Sandbox) -> AllowedCalls:
    return AllowedCalls(
        sandbox.network,
        sandbox.unix_sockets,
        sandbox.execute,
        sandbox.fork,
        sandbox.leave_group,
        sandbox.attributes,
    )


def _confine_files(sandbox: Sandbox) -> None:
    rules = landlock.Ruleset(sandbox.landlock_abi, sandbox.network)
    roots = ("/",) if sandbox.everywhere else ()
    hidden = frozenset(sandbox.hidden) | {"/dev"}
    rules.allow(visible((*roots, *sandbox.readable), hidden, _entries), landlock.READ)
    rules.allow(visible(sandbox.writable, hidden, _entries), landlock.WRITE)
    rules.allow(("/proc",), landlock.READ)
    if sandbox.names_threads:
        rules.allow((_OWN_THREADS,), landlock.CHANGE)
    rules.allow((*_STREAMS, *_devices()), landlock.DEVICE)
    if sandbox.shared_memory:
        rules.allow((_SHARED_MEMORY,), landlock.WRITE)
    rules.restrict_self()


def _devices() -> Iterator[str]:
    for name, is_link in _entries("/dev"):
        if not is_link and name.startswith(_DEVICES):
            yield f"/dev/{name}"


def _entries(folder: str) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name, entry.is_symlink()
    except OSError:
        return  # gone, no folder, or not ours to list
