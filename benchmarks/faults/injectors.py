"""The faults: each hits real processes, files, links or clocks, and is undone when it is over."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.faults.cells import Cell
from benchmarks.faults.server import Server
from benchmarks.faults.surroundings import STATE_BYTES

LASTS_S = 3.0
FIND_S = 10.0

Undo = Callable[[], None]


class NotInjected(Exception):
    """The fault could not be brought about: nobody was there to be hit."""


def inject(server: Server, cell: Cell) -> tuple[str, Undo]:
    """Bring the fault about; what was seen of it, and what ends it (after LASTS_S, if it lasts).

    Raises NotInjected.
    """
    one = _OF.get((cell.component, cell.kind)) or _OF.get(("", cell.kind))
    if one is None:
        raise NotInjected(f"nobody knows how to inject {cell.name}")
    return one(server, cell.component)


def _signal(server: Server, component: str, number: signal.Signals) -> tuple[str, Undo]:
    pid = _target(server, component)
    os.kill(pid, number)
    return f"{number.name} of {pid}, now {_state(pid)}", _nothing


def _stopped_for_a_while(server: Server, component: str) -> tuple[str, Undo]:
    pid = _target(server, component)
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return f"SIGSTOP of {pid}, now {_state(pid)}", go_on


def _limit(
    server: Server, component: str, which: int, used: Callable[[int], int]
) -> tuple[str, Undo]:
    """The process may have no more than it has now."""
    pid = _target(server, component)
    before = resource.prlimit(pid, which)
    least = used(pid)
    resource.prlimit(pid, which, (least, before[1]))

    def restore() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)

    return f"{pid} may have {least}, as it has", restore


def _descriptors(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1


def _address_space(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _client(server: Server, kill: bool) -> tuple[str, Undo]:
    """A client in a process of its own, with requests that take a while under way."""
    script = (
        "import socket, sys, time\n"
        "body = b'{\"INPUT0\":[[1.0]]}'\n"
        "lines = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(16)]\n"
        "path = b'/v2/models/several/generate_stream'\n"
        "for line in lines: line.sendall(b'POST ' + path + b' HTTP/1.1\\r\\n'\n"
        "    b'Host: localhost\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)\n"
        "print('sent', flush=True)\ntime.sleep(300)\n"
    )
    words = [sys.executable, "-c", script, server.host, str(server.ports[0])]
    client = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert client.stdout is not None
    said = client.stdout.readline()
    if said != b"sent\n":
        client.kill()
        client.wait()
        raise NotInjected("the client could not send its requests")
    if kill:
        client.kill()
        client.wait()
        return "16 requests of a client that was killed", client.stdout.close

    def end() -> None:
        client.kill()
        client.wait()
        client.stdout.close()  # type: ignore[union-attr]

    return "16 streams of a client that reads nothing", end


def _full(server: Server) -> tuple[str, Undo]:
    ballast = (
        server.state.parent / "ballast" / "file"
    )  # not beside the state folder: see sandbox.md
    ballast.parent.mkdir(exist_ok=True)
    with suppress(OSError), ballast.open("wb") as file:
        for _ in range(STATE_BYTES // 2**12):
            file.write(bytes(2**12))
            file.flush()
    left = os.statvfs(server.state).f_bavail
    return f"{left} blocks left", lambda: ballast.unlink(missing_ok=True)


def _file(
    server: Server, told: str, begin: Callable[[Path], object], after: str | None = None
) -> tuple[str, Undo]:
    control = server.surroundings.control
    assert control is not None
    begin(control)

    def end() -> None:
        if after is None:
            control.unlink(missing_ok=True)
        else:
            control.write_text(after)

    return told, end


def _cut(server: Server) -> tuple[str, Undo]:
    link = server.surroundings.link
    _ip("link", "set", link, "down")
    return f"{link} is down", lambda: _ip("link", "set", link, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def _deleted(server: Server) -> tuple[str, Undo]:
    """The file comes back from a copy made before, as an operator would restore it."""
    file = server.state / "modelyard.db"
    inode = file.stat().st_ino
    for each in server.state.glob("modelyard.db*"):
        if each.suffix != ".migrating":
            each.unlink()
    return f"inode {inode} is gone", _nothing


def _corrupted(server: Server) -> tuple[str, Undo]:
    file = server.state / "modelyard.db"
    size = file.stat().st_size
    with file.open("r+b") as opened:
        for at in range(0, size, 4096):
            opened.seek(at + 100)
            opened.write(os.urandom(512))
    return f"every page of {size} bytes is overwritten", _nothing


def _locked(server: Server) -> tuple[str, Undo]:
    line = sqlite3.connect(
        server.state / "modelyard.db", timeout=10, isolation_level=None, check_same_thread=False
    )
    line.execute("BEGIN IMMEDIATE")

    def end() -> None:
        line.execute("ROLLBACK")
        line.close()

    return "another process may write", end


def _target(server: Server, component: str) -> int:
    """Who is to be hit; waits for one that is only there for a moment. Raises NotInjected."""
    until = time.monotonic() + FIND_S
    while not (found := server.pids(component)):
        if time.monotonic() > until:
            raise NotInjected(f"no {component} was running")
        time.sleep(0.002)
    return found[-1]


def _state(pid: int) -> str:
    """The kernel's letter for it, once the signal has done something."""
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        try:
            letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "gone"
        if letter not in "RSD":
            return letter
    return letter


def _nothing() -> None:
    """It lasts for good, or is over already."""


def _hang(server: Server) -> tuple[str, Undo]:
    server.hang.touch()
    return "execute waits for ever", lambda: server.hang.unlink(missing_ok=True)


def _slow(server: Server) -> tuple[str, Undo]:
    return _file(server, "fsync takes 0.5 s longer", lambda file: file.touch())


def _shifted(shift: str) -> Callable[[Server, str], tuple[str, Undo]]:
    def move(server: Server, _: str) -> tuple[str, Undo]:
        return _file(server, f"clock {shift} s", lambda file: file.write_text(shift), "+0")

    return move


_OF: dict[tuple[str, str], Callable[[Server, str], tuple[str, Undo]]] = {
    ("client", "kill"): lambda server, _: _client(server, True),
    ("client", "stop"): lambda server, _: _client(server, False),
    ("worker", "hang"): lambda server, _: _hang(server),
    ("gateway", "stop"): _stopped_for_a_while,
    ("git", "stop"): _stopped_for_a_while,
    ("database", "deleted"): lambda server, _: _deleted(server),
    ("database", "corrupted"): lambda server, _: _corrupted(server),
    ("database", "locked"): lambda server, _: _locked(server),
    ("disk", "full"): lambda server, _: _full(server),
    ("disk", "slow"): lambda server, _: _slow(server),
    ("network", "cut"): lambda server, _: _cut(server),
    ("clock", "an hour ahead"): _shifted("+3600"),
    ("clock", "an hour back"): _shifted("-3600"),
    ("", "kill"): lambda server, component: _signal(server, component, signal.SIGKILL),
    ("", "stop"): lambda server, component: _signal(server, component, signal.SIGSTOP),
    ("", "no descriptors"): lambda server, component: _limit(
        server, component, resource.RLIMIT_NOFILE, _descriptors
    ),
    ("", "no memory"): lambda server, component: _limit(
        server, component, resource.RLIMIT_AS, _address_space
    ),
}
"""By component and kind; without a component, whatever that kind is not told of above."""
