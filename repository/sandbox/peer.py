"""Tell whether a Unix socket's peer is a confined process: those get nothing from us there.

No kernel of today lets Landlock decide who connects to a socket's path, so whoever listens looks.
"""

import os
import select
import socket
import struct
from pathlib import Path

_UCRED = struct.Struct("3i")
_SO_PEERPIDFD = 77
"""Since Linux 6.5; <asm-generic/socket.h>."""
_MARK = "Max msgqueue size"
OF_WORKER, OF_PARSER = 0, 1
"""Bytes of message queues that confined processes may have: too few for one. A process cannot
raise the limit again."""


def is_confined(connection: socket.socket) -> bool:
    """Whether the process that connected is confined, or has gone so that nobody can tell.

    A confined process has no message queues (`repository.sandbox.privileges`) and cannot get
    them back. One of another PID namespace is not of ours.
    """
    pid, _, _ = _UCRED.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    if pid == 0 or pid == os.getpid():
        return False
    try:
        descriptor = _pidfd(connection, pid)
    except OSError:
        return True
    try:
        return _is_marked(pid) or _has_ended(descriptor)
    finally:
        os.close(descriptor)


def _pidfd(connection: socket.socket, pid: int) -> int:
    """Of the very process that connected, where the kernel says; raises OSError if it is gone."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return os.pidfd_open(pid)


def is_of_worker(pid: int) -> bool:
    """Whether a process is a worker or below one, also when it has ended and is not reaped yet."""
    return _mark(pid) == str(OF_WORKER)


def _is_marked(pid: int) -> bool:
    """Also where it cannot be read because the process has gone."""
    mark = _mark(pid)
    if not mark:
        return Path("/proc/self/limits").exists()
    return mark in (str(OF_WORKER), str(OF_PARSER))


def _mark(pid: int) -> str:
    """Its hard limit; empty where it cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(_MARK).split()[1] for line in lines if _MARK in line), "")


def _has_ended(descriptor: int) -> bool:
    """A descriptor of a process is readable once it has ended: its number may be another's now."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
