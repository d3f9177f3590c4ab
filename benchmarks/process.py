"""A peer as a process of its own: started, waited for, weighed, stopped."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

POLL_S = 0.02
STOP_S = 30.0
IDLE_SHARE, IDLE_S, IDLE_DEADLINE_S = 0.1, 0.5, 60.0


class PeerFailed(Exception):
    """A peer ended, or was not ready in time; the message ends with its last words."""


@dataclass(frozen=True)
class Process:
    """A running peer. `ready_s`: seconds from its start until it answered that it is ready."""

    name: str
    pid: int
    ready_s: float

    def cpu_ns(self) -> int:
        """CPU time of all its threads and its child processes so far."""
        return sum(_thread_ns(pid) for pid in family(self.pid))

    def wait_idle(self) -> None:
        """Wait until it takes less than a tenth of a core, twice in a row for half a second.

        CPU time is not that of requests alone before: the start goes on, and what a child took
        that ends is missing afterwards. Raises `PeerFailed`.
        """
        until, quiet, before = time.monotonic() + IDLE_DEADLINE_S, 0, self.cpu_ns()
        while quiet < 2:
            if time.monotonic() > until:
                raise PeerFailed(f"{self.name} was not idle within {IDLE_DEADLINE_S:.0f} s")
            time.sleep(IDLE_S)
            now = self.cpu_ns()
            quiet = quiet + 1 if abs(now - before) < IDLE_SHARE * IDLE_S * 1e9 else 0
            before = now

    def rss_bytes(self) -> int:
        """Resident memory of the process itself, without its children."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    *,
    deadline_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Process]:
    """Run `command` in `folder` until the block ends; its output goes to `log`.

    Raises `PeerFailed` if it ends or is not `ready` within `deadline_s` seconds. On the way out
    it gets SIGTERM, later SIGKILL, and with it every process of its session.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        started = time.monotonic()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
    try:
        while not ready():
            _check_alive(name, child, log)
            if time.monotonic() - started > deadline_s:
                raise PeerFailed(f"{name} not ready after {deadline_s:.0f} s\n{last_words(log)}")
            time.sleep(POLL_S)
        yield Process(name, child.pid, time.monotonic() - started)
    finally:
        _stop(child)


def is_http_ready(address: str, path: str) -> bool:
    """Whether a GET of `path` at HOST:PORT answers 200."""
    host, _, port = address.partition(":")
    with closing(HTTPConnection(host, int(port), timeout=5)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False


def is_listening(address: str) -> bool:
    """Whether somebody accepts connections at HOST:PORT."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def free_addresses(count: int) -> list[str]:
    """That many HOST:PORT on this machine that nobody uses now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def port_of(address: str) -> str:
    """The port of HOST:PORT."""
    return address.rpartition(":")[2]


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def last_words(log: Path) -> str:
    """The end of a peer's output."""
    return log.read_text(errors="replace")[-2000:]


def _thread_ns(pid: int) -> int:
    total = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
    return total


def _check_alive(name: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
    if child.poll() is not None:
        raise PeerFailed(f"{name} ended with status {child.returncode}\n{last_words(log)}")


def _stop(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
