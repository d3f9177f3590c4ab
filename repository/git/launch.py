"""Becomes git, after having tied itself to its parent, given up privileges and set limits.

Git unpacks what strangers sent: it gets no internet, and cannot trace or mount. Its files are not
confined: each command has other folders, and hooks run other programs.

A script of its own, run by `python -I -S`: code between fork and exec is not safe in a process
with threads. Arguments: parent's pid, bytes of private memory (0: no limit), niceness, git, its
arguments.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent_pid, memory_bytes, nice = (int(word) for word in sys.argv[1:4])
    _give_up_privileges()  # first: the limit of memory has no room for imports
    # SIGTERM and not SIGKILL: git then removes its quarantine and its lock files.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        os._exit(1)
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Python ignores it; git is to end when nobody reads what it writes.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.nice(nice)
    os.execv(sys.argv[4], sys.argv[4:])


def _give_up_privileges() -> None:
    # Without `site` our packages are not found; pathlib would take 5 ms to import.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, root)
    from repository.sandbox import privileges
    from repository.sandbox.calls import AllowedCalls

    privileges.drop_privileges()
    if privileges.seccomp_available(os.uname().machine):
        allowed = AllowedCalls(network=False, unix_sockets=True, execute=True)
        privileges.filter_calls(allowed)


if __name__ == "__main__":
    main()
