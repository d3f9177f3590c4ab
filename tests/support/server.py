"""A real server in a process of its own, on free ports, for tests: `with running(repository) as s`.

`server.http`, `server.grpc` and `server.metrics` are "127.0.0.1:PORT"; everything the process
prints is in `server.log()`. Leaving the block ends the process, with SIGKILL if it must be.
"""

import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

from support import preloaded
from support.preloaded import ROOT as ROOT
from support.preloaded import Process

START_SECS = 60.0
STOP_SECS = 60.0
PORTS_A_PROCESS = 200


def free_ports(count: int) -> list[int]:
    """Ports free a moment ago, all different, that no other process of tests is given."""
    found: list[int] = []
    for port in _own_ports():
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


@cache
def _own_ports() -> Iterator[int]:
    """A block of ports round and round; it is locked for as long as this process lives.

    All are below those that the kernel gives to whoever connects or asks for any port: a server
    that is down for a moment finds its port free again.
    """
    for first in range(20_000, 32_000, PORTS_A_PROCESS):
        path = Path(tempfile.gettempdir(), f"modelyard-test-ports-{os.getuid()}-{first}")
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cycle(range(first, first + PORTS_A_PROCESS))
        os.close(lock)
    raise AssertionError("every block of ports belongs to another process of tests")


@dataclass
class Server:
    """A running server process. Ports are of 127.0.0.1."""

    process: Process
    log_file: Path
    http_port: int
    grpc_port: int
    metrics_port: int
    command: list[str] = field(default_factory=list)

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"127.0.0.1:{self.metrics_port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def get(self, path: str, port: int | None = None) -> tuple[int, bytes]:
        """(status, body) of a GET; raises OSError when nobody listens."""
        return self.call("GET", path, port=port)

    def post(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """(status, body) of a POST of `body` as JSON."""
        return self.call("POST", path, b"" if body is None else json.dumps(body).encode())

    def call(
        self, verb: str, path: str, body: bytes | None = None, port: int | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=60)
        try:
            connection.request(verb, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def index(self) -> list[dict[str, Any]]:
        """The repository index over REST."""
        status, body = self.post("/v2/repository/index")
        assert status == 200, body
        rows: list[dict[str, Any]] = json.loads(body)
        return rows

    def is_ready(self, path: str = "/v2/health/ready") -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.get(path)[0] == 200
        return False

    def wait_ready(self, seconds: float = START_SECS) -> None:
        self.wait_for(self.is_ready, "the server to be ready", seconds)

    def wait_for(self, true: Any, what: str, seconds: float = 60.0) -> None:
        """Poll until `true()`; fails with the log when the server dies or time runs out."""
        deadline = time.monotonic() + seconds
        while not true():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the server exited with {self.process.returncode} before {what}:\n{self.log()}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds} s for {what}:\n{self.log()}")
            time.sleep(0.02)

    def children(self, title: str) -> list[int]:
        """The processes of the server whose command lines hold `title`."""
        pids = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    command = (folder / "cmdline").read_bytes()
                    parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                except OSError:
                    continue
                if int(parent) == self.pid and title.encode() in command:
                    pids.append(int(folder.name))
        return sorted(pids)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, seconds: float = STOP_SECS) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM, then the exit status."""
        self.terminate()
        return self.wait_exit()


@contextmanager
def running(
    *repositories: Path,
    wait: bool = True,
    environment: dict[str, str] | None = None,
    python: Path | None = None,
    **settings: object,
) -> Iterator[Server]:
    """A server over `repositories`; `settings` are flags: `exit_timeout_secs=5`.

    A list gives the flag once per element; `wait=False` returns before the server is ready. There
    is no control process unless `allow_admin=True`.
    """
    http_port, grpc_port, metrics_port, admin_port = free_ports(4)
    with tempfile.TemporaryDirectory(prefix="modelyard-test-") as folder:
        flags: dict[str, object] = {
            "model_repository": [str(one) for one in repositories],
            "http_port": http_port,
            "grpc_port": grpc_port,
            "metrics_port": metrics_port,
            "admin_port": admin_port,
            "allow_admin": False,
            "state_dir": str(Path(folder) / "state"),
            **settings,
        }
        arguments = ["serve", *_flags(flags)]
        log_file = Path(folder) / "log"
        with log_file.open("wb") as log:
            whole = {**os.environ, **(environment or {})}
            process: Process = (
                preloaded.start(arguments, whole, ROOT, log.fileno())
                if python is None
                else subprocess.Popen(
                    [str(python), "-m", "server.cli", *arguments],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=whole,
                )
            )
        server = Server(
            process,
            log_file,
            int(str(flags["http_port"])),
            int(str(flags["grpc_port"])),
            int(str(flags["metrics_port"])),
            arguments,
        )
        try:
            if wait:
                server.wait_ready()
            yield server
        finally:
            _end(process)


def _flags(settings: dict[str, object]) -> list[str]:
    flags = []
    for name, value in settings.items():
        for one in value if isinstance(value, list) else [value]:
            text = str(one).lower() if isinstance(one, bool) else str(one)
            flags.append(f"--{name.replace('_', '-')}={text}")
    return flags


def _end(process: Process) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_identity(
    repository: Path, name: str, *versions: int, config: str | None = None, delay_ms: int = 0
) -> Path:
    """An identity model (FP32, any length) with the versions given; returns its folder.

    `config` replaces the whole config.pbtxt; `delay_ms` sets `execute_delay_ms`.
    """
    folder = repository / name
    for version in versions or (1,):
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
    text = identity_config(name, delay_ms) if config is None else config
    (folder / "config.pbtxt").write_text(text)
    return folder


def identity_config(name: str, delay_ms: int = 0, extra: str = "") -> str:
    """A config.pbtxt: identity, INPUT0 → OUTPUT0, FP32 [-1], batches of up to 8, all versions."""
    delay = (
        f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}\n'
        if delay_ms
        else ""
    )
    return (
        f'name: "{name}"\nbackend: "identity"\nmax_batch_size: 8\n'
        "version_policy { all {} }\n"
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n'
        f"dynamic_batching {{}}\n{delay}{extra}"
    )
