"""A whole server with its control process, for tests: `with yard(tmp_path) as y`.

`y.cli(...)` is the command line, `y.api(...)` the control API over the local socket, `y.git(...)`
the stock client, logged in with a token that may push everywhere. Restart it on the same state with
`y.again()`.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import preloaded
from support.git_http import CLIENT
from support.server import ROOT, Server, free_ports, identity_config

PATIENCE_SECS = 60.0


@dataclass
class Yard:
    """A server process over `state`; `server` is replaced by each start."""

    folder: Path
    flags: dict[str, object]
    environment: dict[str, str]
    server: Server = field(init=False)
    token: str = ""

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def admin_port(self) -> int:
        return int(str(self.flags["admin_port"]))

    def start(self, wait: bool = True, **environment: str) -> None:
        arguments = ["serve"]
        for name, value in self.flags.items():
            values = value if isinstance(value, list) else [value]
            arguments += [f"--{name.replace('_', '-')}={_text(one)}" for one in values]
        log_file = self.folder / "server.log"
        with log_file.open("ab") as log:
            whole = {**os.environ, "PYTHONPATH": str(ROOT), **self.environment, **environment}
            process = preloaded.start(arguments, whole, self.folder, log.fileno(), new_session=True)
        ports = (
            int(str(self.flags[f"{listener}_port"])) for listener in ("http", "grpc", "metrics")
        )
        self.server = Server(process, log_file, *ports, command=arguments)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        self.server.wait_ready(PATIENCE_SECS)
        self.wait_for(self.answers, "the control process to answer", PATIENCE_SECS)

    def answers(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.api("GET", "/me")[0] == 200
        return False

    def wait_for(self, true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        self.server.wait_for(true, what, seconds)

    def kill(self) -> None:
        """SIGKILL to the gateway; its control process dies with it."""
        self.server.process.kill()
        self.server.process.wait(60)

    def stop(self) -> None:
        if self.server.process.poll() is None:
            self.server.process.send_signal(signal.SIGTERM)
            try:
                self.server.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def again(self, **environment: str) -> None:
        """End it, if it has not ended, and start it on the same state."""
        self.stop()
        self.start(**environment)

    def control_pid(self) -> int:
        """The process that owns the admin port's sockets; 0 while there is none."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.server.pid), "-f", "server.control_process"],
            capture_output=True,
            check=False,
        )
        return int(found.stdout.split()[0]) if found.stdout.split() else 0

    # the ways in

    def cli(self, *arguments: str, ok: bool = True, stdin: str = "") -> str:
        """A command's output; `ok=False` when it is to fail: both outputs then."""
        whole = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = (*arguments, "--state-dir", str(self.state))
        done = preloaded.run(words, whole, self.folder, stdin)
        assert (done.returncode == 0) is ok, (arguments, done.stdout, done.stderr)
        return done.stdout if ok else done.stdout + done.stderr

    def cli_json(self, *arguments: str) -> Any:
        return json.loads(self.cli(*arguments, "--json"))

    def api(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, JSON) over the local socket, as this machine's user."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect(str(self.sockets() / "api.sock"))
            sent = None if body is None else json.dumps(body)
            connection.request(verb, f"/api/v1{path}", sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def sockets(self) -> Path:
        from control.state_paths import sockets

        return sockets(self.state)

    def git(self, folder: Path, *arguments: str, ok: bool = True) -> str:
        """git's output, both streams; fails the test when it does not end as it should."""
        helper = f"!f() {{ echo username=ada; echo password={self.token}; }}; f"
        done = subprocess.run(
            ["git", "-c", "credential.helper=", "-c", f"credential.helper={helper}", *arguments],
            cwd=folder,
            env={**CLIENT, "HOME": str(self.folder)},
            capture_output=True,
            timeout=120,
            check=False,
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert (done.returncode == 0) is ok, said
        return said

    def url(self, repository: str) -> str:
        return f"http://127.0.0.1:{self.admin_port}/git/{repository}.git"

    # a working copy

    def repository(self, name: str = "models", **settings: Any) -> Path:
        """Make a repository on the server, a token to push to it, and an empty working copy."""
        status, made = self.api("POST", "/repositories", {"name": name, "settings": settings})
        assert status == 201, made
        self.log_in("admin")
        folder = self.folder / f"work-{name}"
        folder.mkdir()
        self.git(folder, "init", "-q", "-b", "main")
        self.git(folder, "remote", "add", "origin", self.url(name))
        return folder

    def log_in(self, *scopes: str) -> None:
        """From now on git pushes with a new token of a new administrator."""
        self.api("POST", "/users", {"name": "ada", "role": "admin"})
        body = {"name": f"t{time.monotonic_ns()}", "user": "ada", "scopes": list(scopes)}
        status, made = self.api("POST", "/tokens", body)
        assert status == 201, made
        self.token = made["text"]

    def commit(self, folder: Path, message: str) -> str:
        self.git(folder, "add", "-A")
        self.git(folder, "commit", "-q", "-m", message)
        return self.git(folder, "rev-parse", "HEAD").strip()

    def push(self, folder: Path, *refs: str, ok: bool = True) -> str:
        """What the pusher sees."""
        return self.git(folder, "push", "origin", *(refs or ("main",)), ok=ok)

    def versions(self, model: str) -> list[int]:
        """The versions of a model that answer, ascending."""
        rows = self.server.index()
        return sorted(
            int(row["version"])
            for row in rows
            if row["name"] == model and row.get("state") == "READY"
        )

    def wait_versions(self, model: str, *numbers: int, seconds: float = 60.0) -> None:
        wanted = sorted(numbers)
        self.wait_for(lambda: self.versions(model) == wanted, f"{model} {wanted}", seconds)


def write_identity(folder: Path, name: str, *numbers: int, config: str = "") -> None:
    """An identity model below `models/`; each version has other bytes."""
    home = folder / "models" / name
    for number in numbers:
        (home / str(number)).mkdir(parents=True, exist_ok=True)
        (home / str(number) / "about.txt").write_text(f"version {number}\n")
    text = identity_config(name).replace("version_policy { all {} }", "")
    (home / "config.pbtxt").write_text(text + config)


@contextmanager
def yard(
    folder: Path, environment: dict[str, str] | None = None, **flags: object
) -> Iterator[Yard]:
    """A running server with state below `folder`; ends with every process of it gone."""
    (folder / "models").mkdir(exist_ok=True)
    names = ("http_port", "grpc_port", "metrics_port", "admin_port")
    usual: dict[str, object] = dict(zip(names, free_ports(4), strict=True))
    usual |= {"model_repository": str(folder / "models"), "state_dir": str(folder / "state")}
    made = Yard(folder, {**usual, **flags}, environment or {})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
