"""The server that `benchmarks.console` measures: 200 models of three versions, a route with a
rollout on it, somebody who is logged in, requests at a steady pace, and a second server whose
versions change all the time (`benchmarks.console_updates`).
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.process import Process, family, free_addresses, is_http_ready, port_of, running
from control.state_paths import API, sockets

VERSIONS, REQUESTS_PER_S = 3, 100
ROUTED = "m000"
PASSWORD = "correct horse battery"
PATIENCE_S = 120.0
_CONFIG = """name: "{name}"
backend: "identity"
max_batch_size: 8
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
version_policy {{ all {{}} }}
"""


@dataclass(frozen=True)
class Yard:
    """Addresses of the server's listeners, its processes, a session's cookie, the rollout's id."""

    http: str
    metrics: str
    admin: str
    api: Path
    database: str
    gateway: int
    control: int
    cookie: str
    rollout: str


def say(words: str) -> None:
    """At once, also into a pipe."""
    print(words, flush=True)


@contextmanager
def serve(folder: Path, models: int, pushed: int) -> Iterator[Yard]:
    """A server whose versions are all ready; the first `pushed` models came by git."""
    root, state = folder / "models", folder / "state"
    root.mkdir()
    names = [f"m{number:03}" for number in range(models)]
    for name in names[pushed:]:
        write(root, name)
    http, grpc, metrics, admin = free_addresses(4)
    command = [
        sys.executable, "-m", "server.cli", "serve", f"--model-repository={root}",
        f"--state-dir={state}", f"--http-port={port_of(http)}", f"--grpc-port={port_of(grpc)}",
        f"--metrics-port={port_of(metrics)}", f"--admin-port={port_of(admin)}",
    ]  # fmt: skip

    def ready() -> bool:
        return is_http_ready(http, "/v2/health/ready") and is_http_ready(admin, "/readyz")

    with running("modelyard", command, folder / "log", ready, deadline_s=PATIENCE_S) as process:
        say(f"the server was ready after {process.ready_s:.1f} s")
        api = sockets(state) / API
        ask(api, "POST", "/users", {"name": "iris", "role": "admin", "password": PASSWORD})
        push(folder / "work", api, admin, names[:pushed])
        until(lambda: len(loaded(api)) >= models * VERSIONS, "its versions are not loaded")
        say(f"{models * VERSIONS} versions are loaded, {pushed * VERSIONS} of them came by git")
        database, control = f"sqlite:///{state / 'modelyard.db'}", control_of(process)
        rollout = begin(api)
        cookie = log_in(admin)
        yield Yard(http, metrics, admin, api, database, process.pid, control, cookie, rollout)


def write(root: Path, name: str) -> None:
    for version in range(1, VERSIONS + 1):
        home = root / name / str(version)
        home.mkdir(parents=True)
        (home / "about.txt").write_text(f"{name} {version}\n")
    (root / name / "config.pbtxt").write_text(_CONFIG.format(name=name))


def push(work: Path, api: Path, admin: str, names: list[str]) -> None:
    """One push with all of them; each model is checked before it is taken."""
    work.mkdir()
    for name in names:
        write(work, name)
    ask(api, "POST", "/repositories", {"name": "models"})
    wanted = {"name": "push", "user": "iris", "scopes": ["push:models:*"]}
    token = ask(api, "POST", "/tokens", wanted)["text"]
    url = f"http://iris:{token}@{admin}/git/models.git"
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "All of them"),
        ("push", "-q", url, "main"),
    ):
        who = ("-c", "user.name=iris", "-c", "user.email=iris@localhost")
        subprocess.run(["git", *who, *arguments], cwd=work, check=True, capture_output=True)


def begin(api: Path) -> str:
    """A route to version 1 with a rollout of version 2 that stays at half; its id."""
    body = {"arms": [{"name": "stable", "model": ROUTED, "version": 1, "weight": 100}]}
    ask(api, "PUT", f"/routes/{ROUTED}", body)
    plan = {"steps": "50,100", "hold": "1h", "mirror": 0}
    made = ask(api, "POST", "/rollouts", {"name": ROUTED, "candidate": 2, "plan": plan})
    rollout = str(made["id"])
    until(
        lambda: ask(api, "GET", f"/rollouts/{rollout}")["weight"] == 50,
        "the rollout does not reach its first step",
    )
    return rollout


def loaded(api: Path) -> list[Any]:
    """Of each version in force, what this server says."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = ask(api, "GET", f"/loads?limit=500&state=READY{cursor}")
        found += [row for row in page["items"] if row["version"]]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


def until(true: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} after {PATIENCE_S:.0f} s")
        time.sleep(0.2)


def control_of(process: Process) -> int:
    for pid in family(process.pid):
        if b"server.control_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise ProcessLookupError("the server has no control process")


def own_cpu_ns(pid: int) -> int:
    """Of the process without its children; threads that have ended count, too."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def log_in(admin: str) -> str:
    with closing(HTTPConnection(admin, timeout=60)) as connection:
        form = urlencode({"name": "iris", "password": PASSWORD})
        kind = "application/x-www-form-urlencoded"
        said = {"Content-Type": kind, "Origin": f"http://{admin}"}
        connection.request("POST", "/login", form, said)
        return str(connection.getresponse().headers["Set-Cookie"]).partition(";")[0]


def ask(api: Path, verb: str, path: str, body: Any = None) -> Any:
    """A call of the control API over its local socket. Raises ValueError with what it refused."""
    connection = HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    with closing(connection):
        connection.sock.connect(str(api))
        sent = None if body is None else json.dumps(body)
        connection.request(verb, f"/api/v1{path}", sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
    if answer.status >= 400:
        raise ValueError(f"{verb} {path}: {answer.status} {told.decode(errors='replace')}")
    return json.loads(told or b"null")


@dataclass
class Requests:
    """One client at a steady pace, on a thread of its own. `took_s`: of those since the last
    `taken`."""

    http: str
    over: threading.Event = field(default_factory=threading.Event)
    took_s: list[float] = field(default_factory=list)

    def taken(self) -> list[float]:
        took_s, self.took_s = self.took_s, []
        return took_s

    def send(self) -> None:
        tensor = {"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "data": [0.0] * 16}
        body = json.dumps({"inputs": [tensor]})
        with closing(HTTPConnection(self.http, timeout=60)) as connection:
            due = time.monotonic()
            while not self.over.wait(max(0.0, due - time.monotonic())):
                began = time.monotonic()
                connection.request("POST", f"/v2/models/{ROUTED}/infer", body)
                connection.getresponse().read()
                self.took_s.append(time.monotonic() - began)
                due = max(due + 1 / REQUESTS_PER_S, began - 1.0)  # what is late is left out


@contextmanager
def requests(yard: Yard) -> Iterator[Requests]:
    made = Requests(yard.http)
    thread = threading.Thread(target=made.send)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        thread.join(60)


@contextmanager
def updates(yard: Yard) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.console_updates", yard.database]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        path = "/loads?limit=1&model=m001&state=LOADING"
        until(lambda: bool(ask(yard.api, "GET", path)["items"]), "the other server says nothing")
        yield
        if child.poll() is not None:
            raise ChildProcessError(f"the other server ended with status {child.returncode}")
    finally:
        child.terminate()
        child.wait(30)
