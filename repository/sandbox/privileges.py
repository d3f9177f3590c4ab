"""Give up privileges and set limits, for this process and whatever it starts."""

import ctypes
import os
import resource

from repository.sandbox.calls import MACHINES, AllowedCalls, filter_program

_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_GET_SECCOMP = 38, 24, 21
_SET_MODE_FILTER, _ALL_THREADS = 1, 1  # <linux/seccomp.h>
_CAPABILITY_VERSION = 0x20080522
_KEPT = (0, 1, 2, 3, 4, 10, 14)
"""CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID (files of other users, within what the
sandbox allows), NET_BIND_SERVICE and IPC_LOCK (pinned memory of GPUs)."""
_MOST_CAPABILITIES = 64

MOST_DESCRIPTORS = 65_536
LARGEST_FILE_BYTES = 64 << 30
"""Of one file, shared memory included: tensors of that size are not sent."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def seccomp_available(machine: str) -> bool:
    """Whether filters can be set, and we know this processor's numbers."""
    return machine in MACHINES and _libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def set_limits(message_queue_bytes: int) -> None:
    """No core files, bounded descriptors and files, and no message queues, which is also how
    `repository.sandbox.peer` knows a confined process: the limit cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_NOFILE, MOST_DESCRIPTORS)
    _lower(resource.RLIMIT_FSIZE, LARGEST_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (message_queue_bytes, message_queue_bytes))


def drop_privileges() -> None:
    """Set no_new_privs, and keep only the capabilities of `_KEPT`. Raises OSError."""
    for number in range(_MOST_CAPABILITIES):
        if number not in _KEPT:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails where there is nothing to drop
    header = _Header(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(ctypes.byref(header), sets))
    kept = sum(1 << number for number in _KEPT)
    for index in range(6):  # effective, permitted, inheritable of the low half, then the high
        sets[index] &= kept if index < 3 else 0
    _check(_libc.capset(ctypes.byref(header), sets))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def filter_calls(allowed: AllowedCalls, all_threads: bool = False) -> None:
    """Install the filter of `repository.sandbox.calls`; `no_new_privs` must be set.

    May be called again, to allow less; for `all_threads`, or for this one and those it starts.
    Raises OSError.
    """
    machine = MACHINES[os.uname().machine]
    code = filter_program(machine, allowed, os.getpid())
    program = _FilterProgram(len(code) // 8, code)
    flags = _ALL_THREADS if all_threads else 0
    call = machine.seccomp_call
    _check(_libc.syscall(call, _SET_MODE_FILTER, flags, ctypes.byref(program)))


def _lower(limit: int, most: int) -> None:
    soft, hard = resource.getrlimit(limit)
    hard = most if hard == resource.RLIM_INFINITY else min(hard, most)
    soft = hard if soft == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(limit, (soft, hard))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
