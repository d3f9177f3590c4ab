"""The server under test: `modelyard serve` in surroundings that can be broken."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.faults import models
from benchmarks.faults.surroundings import Surroundings
from benchmarks.process import family, free_addresses, port_of
from control import state_paths

START_S = 120.0
ANSWER_S = 30.0
EXECUTE_S = 3
EXIT_S = 6
LIMITS = (f"--model-execute-timeout-secs={EXECUTE_S}", f"--exit-timeout-secs={EXIT_S}")

_MARKS = {
    "control process": "server.control_process",
    "worker": "backends.process.worker",
    "engine": "schedulers.llm.engine.process",
    "checker": "server.fleet.checks.check",
    "git": "receive-pack",
}


_MODELS = {"worker": "double_0", "caller": "script_0", "sequences": "sum_0"}
"""The instance whose process the component is."""


_PENDING = "nv_inference_pending_request_count{"


class NotStarted(Exception):
    """The server did not get ready; the message has its last words."""


class Server:
    """One state folder and one repository, served by one process after another."""

    def __init__(
        self, folder: Path, surroundings: Surroundings, limits: Sequence[str] = LIMITS
    ) -> None:
        self.folder = folder
        self.surroundings = surroundings
        self._limits = limits
        self.repository = folder / "models"
        self.state = surroundings.state
        self.hang = folder / "hang"
        self.log = folder / "log"
        self.host = surroundings.host
        rest, grpc, metrics, admin = free_addresses(4)
        self.ports = [int(port_of(one)) for one in (rest, grpc, metrics, admin)]
        self._process: subprocess.Popen[bytes] | None = None
        models.write(self.repository, self.hang)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start without waiting."""
        rest, grpc, metrics, admin = self.ports
        command = [
            *self.surroundings.prefix, sys.executable, "-m", "server.cli", "serve",
            f"--model-repository={self.repository}", f"--state-dir={self.state}",
            f"--http-port={rest}", f"--grpc-port={grpc}", f"--metrics-port={metrics}",
            f"--admin-port={admin}", f"--http-address={self.host}", f"--grpc-address={self.host}",
            *self._limits, *self.surroundings.flags,
        ]  # fmt: skip
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.surroundings.environment},
                start_new_session=True,
            )

    def wait_until_ready(self, within_s: float = START_S) -> None:
        """All models ready and a change possible. Raises NotStarted."""
        until = time.monotonic() + within_s
        while not self.is_well():
            if self._process is not None and self._process.poll() is not None:
                raise NotStarted(f"ended with {self._process.returncode}\n{self.last_words()}")
            if time.monotonic() > until:
                raise NotStarted(f"not ready after {within_s:.0f} s\n{self.last_words()}")
            time.sleep(0.1)

    def is_well(self) -> bool:
        """Whether it says that every model is ready, and its control process answers."""
        try:
            return self.get("/v2/health/ready")[0] == 200 and self.api("GET", "/server")[0] == 200
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def waiting(self) -> int:
        """Requests in the queues of all models, as its metrics have them. Raises OSError,
        HTTPException."""
        line = http.client.HTTPConnection(self.host, self.ports[2], timeout=ANSWER_S)
        try:
            line.request("GET", "/metrics")
            text = line.getresponse().read().decode()
        finally:
            line.close()
        rows = [one for one in text.splitlines() if one.startswith(_PENDING)]
        return sum(int(float(row.rpartition(" ")[2])) for row in rows)

    def get(self, path: str, timeout: float = 5.0) -> tuple[int, bytes]:
        """Raises OSError, HTTPException."""
        return self.ask("GET", path, b"", timeout)

    def ask(
        self, method: str, path: str, body: bytes = b"", timeout: float = ANSWER_S
    ) -> tuple[int, bytes]:
        """Over REST, on a connection of its own. Raises OSError, HTTPException."""
        line = http.client.HTTPConnection(self.host, self.ports[0], timeout=timeout)
        try:
            line.request(method, path, body or None)
            answer = line.getresponse()
            return answer.status, answer.read()
        finally:
            line.close()

    def api(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout: float = ANSWER_S
    ) -> tuple[int, Any]:
        """The control API, as the user that runs the server. Raises OSError, HTTPException."""
        line = http.client.HTTPConnection("localhost", timeout=timeout)
        line.sock = socket.socket(socket.AF_UNIX)
        line.sock.settimeout(timeout)
        try:
            line.sock.connect(str(state_paths.socket_folder(self.state) / state_paths.API))
            text = json.dumps(body) if body is not None else None
            line.request(method, f"/api/v1{path}", text, {"Content-Type": "application/json"})
            answer = line.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else None
        finally:
            line.close()

    def download(self, path: str) -> int:
        """Bytes of an answer of the control API to a POST. Raises OSError, HTTPException."""
        line = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
        line.sock = socket.socket(socket.AF_UNIX)
        line.sock.settimeout(ANSWER_S)
        try:
            line.sock.connect(str(state_paths.socket_folder(self.state) / state_paths.API))
            line.request("POST", f"/api/v1{path}")
            answer = line.getresponse()
            size = 0
            while piece := answer.read(2**16):
                size += len(piece)
            return size
        finally:
            line.close()

    def roles(self) -> dict[int, str]:
        """Every process of the server, by what it is."""
        found = {self.pid: "gateway"}
        for pid in family(self.pid)[1:]:
            command = command_of(pid)
            found[pid] = next((it for it, mark in _MARKS.items() if mark.encode() in command), "")
        return found

    def pids(self, component: str) -> list[int]:
        """The running processes that are this component; the oldest first."""
        if component == "gateway":
            return [self.pid]
        if component in _MODELS:
            return [pid for pid in family(self.pid) if instance_of(pid) == _MODELS[component]]
        mark = _MARKS[component].encode()
        return [pid for pid in family(self.pid) if mark in command_of(pid)]

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self, within_s: float) -> int | None:
        """Its exit status, None when it is still there after that time."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(within_s)
        return None

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def end(self) -> list[int]:
        """End it however it is; the processes that outlived it, which are ended too."""
        if self._process is None:
            return []
        members = family(self._process.pid)[1:]
        self._process.kill()
        self._process.wait()
        until = time.monotonic() + 5
        left = [pid for pid in members if _is_running(pid)]
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = [pid for pid in left if _is_running(pid)]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def log_since(self, start: int) -> str:
        with self.log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0


@contextmanager
def server(needs: str) -> Iterator[Server]:
    """A server that is ready, in surroundings of this kind.

    Raises `surroundings.NotHere` where they cannot be made, NotStarted.
    """
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        with Surroundings.made(needs, folder) as surroundings:
            one = Server(folder, surroundings)
            try:
                one.start()
                one.wait_until_ready()
                yield one
            finally:
                one.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def instance_of(pid: int) -> str:
    """Which one's worker it is, "" for none."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"MODELYARD_INSTANCE="):
                return entry.partition(b"=")[2].decode()
    return ""


def _is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
