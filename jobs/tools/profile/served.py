"""A server of our own for one model, on Unix sockets: started, told to load, measured, stopped."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.result.config import write_config
from jobs.tools.work import refuse

START_S, LOAD_S, STOP_S = 180.0, 300.0, 30.0
POLL_S = 0.05
ROOT = Path(__file__).resolve().parents[3]
SERVER_PYTHON = "MODELYARD_SERVER_PYTHON"
"""The variable with the server's interpreter; a tool's own environment lacks its packages."""
_LONGEST_PATH = 100
"""Of a Unix socket's path; the system takes 107 bytes."""


class LoadRefused(Exception):
    """The server does not load the model under a config; the text is its reason."""


class ProfiledServer:
    """A context manager. Raises WorkRefused where the server does not start."""

    def __init__(self, scratch: Path, source: Path, config: pb.ModelConfig) -> None:
        self._scratch = scratch
        self._name = config.name
        folder = scratch / "models" / config.name
        (folder / "1").mkdir(parents=True)
        for one in source.iterdir():
            if one.name != "config.pbtxt":
                (shutil.copytree if one.is_dir() else shutil.copyfile)(one, folder / "1" / one.name)
        write_config(folder, config)
        self.socket = str(scratch / "http.sock")
        if len(self.socket) > _LONGEST_PATH:
            refuse(f"the scratch folder's path is too long for a Unix socket: {self.socket}")
        self._log = scratch / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ProfiledServer":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                env=_variables(),
            )
        until = time.monotonic() + START_S
        while not self._is_live():
            if self._process.poll() is not None:
                refuse(f"the server ended at its start: {self._tail()}")
            if time.monotonic() > until:
                self._stop()
                refuse(f"the server does not answer after {START_S:g} s: {self._tail()}")
            time.sleep(POLL_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def load(self, config: pb.ModelConfig) -> None:
        """Have the model loaded under this config, in place of another. Raises LoadRefused."""
        given = json_format.MessageToJson(config, preserving_proto_field_name=True)
        body = json.dumps({"parameters": {"config": given}}).encode()
        status, answer = self._ask("POST", f"/v2/repository/models/{self._name}/load", body)
        if status != http.HTTPStatus.OK:
            raise LoadRefused(answer.decode(errors="replace")[:1000])

    def memory(self) -> int:
        """Bytes resident, of the server and the processes that it started."""
        assert self._process is not None
        return sum(_resident(pid) for pid in _family(self._process.pid))

    def cpu_seconds(self) -> float:
        """Processor time that the server and the processes that it started have taken."""
        assert self._process is not None
        return sum(_cpu_seconds(pid) for pid in _family(self._process.pid))

    def _command(self) -> list[str]:
        return [
            *(os.environ.get(SERVER_PYTHON, sys.executable), "-P", "-m", "modelyard", "serve"),
            f"--model-repository={self._scratch / 'models'}",
            "--model-control-mode=explicit",
            f"--http-address=unix:{self.socket}",
            "--allow-grpc=false", "--allow-metrics=false", "--allow-admin=false",
            "--worker-sandbox=off",  # it is in this job's own, and none can be entered in there
            f"--state-dir={self._scratch / 'state'}",
        ]  # fmt: skip

    def _is_live(self) -> bool:
        try:
            return self._ask("GET", "/v2/health/live")[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = _ServerConnection(self.socket, LOAD_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in _family(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-1500:].strip()


class _ServerConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("profile", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _variables() -> dict[str, str]:
    """The server's: our packages from where this process has them, and no settings of another."""
    kept = {name: one for name, one in os.environ.items() if not name.startswith("MODELYARD_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for child in _children(pid):
        found += _family(child)
    return found


def _children(pid: int) -> list[int]:
    """Those of all its threads: the kernel lists each under the thread that made it."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, thread.read_text().split())
        except OSError:
            continue  # the thread has ended
    return found


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
