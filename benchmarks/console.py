"""What the console costs: `python -m benchmarks.console`. Tabs on a server with 200 models of three
versions, while requests are answered and aliases move.

Two figures: the control process's CPU that one tab adds, as a share of a core; and the gateway's
CPU per request and its worst loop stall with twenty tabs beside none. CPU comes from the scheduler
(/proc), and windows with and without tabs take turns, so that other load disturbs both alike.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from benchmarks.process import Process, family, free_addresses, is_http_ready, port_of, running
from server.wanted.places import API, sockets

MODELS, VERSIONS = 200, 3
REQUESTS_PER_S, MOVES_PER_S = 100, 10
SCREENS = ("/", "/models", "/models/m000", "/servers")
MANY = 20
PASSWORD = "correct horse battery"
MOST_SHARE = 0.02
_CONFIG = """name: "{name}"
backend: "identity"
max_batch_size: 8
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
version_policy {{ all {{}} }}
"""


@dataclass(frozen=True)
class Yard:
    """The server that is measured: addresses of its doors, its processes, a session's cookie."""

    http: str
    metrics: str
    admin: str
    api: Path
    gateway: int
    control: int
    cookie: str


@dataclass
class Window:
    """What one stretch of time cost. CPU in seconds; `stall_s` the worst of the gateway's loop."""

    seconds: float
    control_s: float
    gateway_s: float
    requests: int
    stall_s: float
    pieces: int

    @property
    def control_share(self) -> float:
        return self.control_s / self.seconds

    @property
    def us_per_request(self) -> float:
        return self.gateway_s * 1e6 / max(1, self.requests)


@dataclass
class Count:
    """Counted by one thread, read by another."""

    number: int = 0


def main() -> int:
    """Measure and print; 1 when a bound is missed."""
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yard = stack.enter_context(serve(folder, arguments.models))
        done = stack.enter_context(driving(yard))
        one = [(screen, *turns(yard, done, [screen], arguments)) for screen in SCREENS]
        many = turns(yard, done, [SCREENS[n % len(SCREENS)] for n in range(MANY)], arguments)
    return tell(one, many)


def turns(
    yard: Yard, done: Count, tabs: Sequence[str], arguments: argparse.Namespace
) -> tuple[list[Window], list[Window]]:
    """Windows without and with the tabs, by turns."""
    without, with_tabs = [], []
    for _ in range(arguments.rounds):
        without.append(measured(yard, done, [], arguments.seconds))
        with_tabs.append(measured(yard, done, tabs, arguments.seconds))
    return without, with_tabs


def measured(yard: Yard, done: Count, tabs: Sequence[str], seconds: float) -> Window:
    pieces = Count()
    with ExitStack() as stack:
        for at in tabs:
            stack.enter_context(tab(yard, at, pieces))
        time.sleep(1.0)  # the first pieces are of opening a page, not of following it
        control, gateway = own_cpu_ns(yard.control), own_cpu_ns(yard.gateway)
        began, requests, seen = time.monotonic(), done.number, pieces.number
        time.sleep(seconds)
        took = time.monotonic() - began
        return Window(
            took,
            (own_cpu_ns(yard.control) - control) / 1e9,
            (own_cpu_ns(yard.gateway) - gateway) / 1e9,
            done.number - requests,
            stall(yard),
            pieces.number - seen,
        )


@contextmanager
def serve(folder: Path, models: int) -> Iterator[Yard]:
    """A server with that many models of three versions, all ready, and a user who is logged in."""
    root, state = folder / "models", folder / "state"
    for number in range(models):
        home = root / f"m{number:03}"
        for version in range(1, VERSIONS + 1):
            (home / str(version)).mkdir(parents=True)
        (home / "config.pbtxt").write_text(_CONFIG.format(name=home.name))
    http, grpc, metrics, admin = free_addresses(4)
    command = [
        sys.executable, "-m", "server.cli", "serve", f"--model-repository={root}",
        f"--state-dir={state}", f"--http-port={port_of(http)}", f"--grpc-port={port_of(grpc)}",
        f"--metrics-port={port_of(metrics)}", f"--admin-port={port_of(admin)}",
    ]  # fmt: skip

    def ready() -> bool:
        return is_http_ready(http, "/v2/health/ready") and is_http_ready(admin, "/readyz")

    with running("modelyard", command, folder / "log", ready, deadline_s=600) as process:
        api = sockets(state) / API
        wait(lambda: len(ask(api, "GET", "/loads?limit=500&state=READY")["items"]) >= 500, models)
        ask(api, "POST", "/users", {"name": "iris", "role": "admin", "password": PASSWORD})
        body = {"arms": [{"name": "stable", "model": "m000", "version": 1, "weight": 100}]}
        ask(api, "PUT", "/routes/shop", body)
        control = control_of(process)
        yield Yard(http, metrics, admin, api, process.pid, control, log_in(admin))


def wait(true: Callable[[], bool], models: int) -> None:
    """Until the control process knows of what is loaded; less than 500 rows are not waited for."""
    deadline = time.monotonic() + 120
    while models * VERSIONS >= 500 and not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the control process did not hear of all versions in 120 s")
        time.sleep(0.2)


def own_cpu_ns(pid: int) -> int:
    """Of the process without its children; threads that have ended count, too."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def control_of(process: Process) -> int:
    for pid in family(process.pid):
        if b"server.admin.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise ProcessLookupError("the server has no control process")


def log_in(admin: str) -> str:
    with closing(HTTPConnection(admin, timeout=60)) as connection:
        form = urlencode({"name": "iris", "password": PASSWORD})
        kind = "application/x-www-form-urlencoded"
        said = {"Content-Type": kind, "Origin": f"http://{admin}"}
        connection.request("POST", "/login", form, said)
        return str(connection.getresponse().headers["Set-Cookie"]).partition(";")[0]


def ask(api: Path, verb: str, path: str, body: Any = None) -> Any:
    """A call of the control API over its local socket."""
    connection = HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    with closing(connection):
        connection.sock.connect(str(api))
        sent = None if body is None else json.dumps(body)
        connection.request(verb, f"/api/v1{path}", sent, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read() or b"null")


@contextmanager
def tab(yard: Yard, at: str, pieces: Count) -> Iterator[None]:
    """A page that is followed from now on; what comes is read and counted."""
    newest = ask(yard.api, "GET", "/events?newest=true&limit=1")["items"]
    after = newest[0]["id"] if newest else 0
    connection = HTTPConnection(yard.admin, timeout=30)
    connection.request(
        "GET", f"/live?at={quote(at)}&after={after}", headers={"Cookie": yard.cookie}
    )
    line = connection.sock
    answer = connection.getresponse()
    if answer.status != 200:
        raise HTTPException(f"{at} cannot be followed: {answer.status} {answer.read()[:200]!r}")

    def read() -> None:
        with suppress(OSError, HTTPException, ValueError, AttributeError):
            while piece := answer.read1(65536):
                pieces.number += piece.count(b"event: live")

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        thread.join(30)
        connection.close()


@dataclass
class Driver:
    """Requests and changes at a steady pace, each on a thread of its own."""

    yard: Yard
    over: threading.Event = field(default_factory=threading.Event)
    done: Count = field(default_factory=Count)

    def infer(self) -> None:
        tensor = {"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "data": [0.0] * 16}
        body = json.dumps({"inputs": [tensor]})
        with closing(HTTPConnection(self.yard.http, timeout=60)) as connection:
            for _ in self._paced(REQUESTS_PER_S):
                connection.request("POST", "/v2/models/shop/infer", body)
                connection.getresponse().read()
                self.done.number += 1

    def move(self) -> None:
        for number in self._paced(MOVES_PER_S):
            path = f"/models/m{number % 50:03}/aliases/champion"
            ask(self.yard.api, "PUT", path, {"version": 1 + number // 50 % VERSIONS})

    def _paced(self, per_s: float) -> Iterator[int]:
        """Numbers in time; what could not be done in time is left out."""
        due, number = time.monotonic(), 0
        while not self.over.wait(max(0.0, due - time.monotonic())):
            yield number
            number += 1
            due = max(due + 1 / per_s, time.monotonic() - 1.0)


@contextmanager
def driving(yard: Yard) -> Iterator[Count]:
    driver = Driver(yard)
    threads = [threading.Thread(target=one) for one in (driver.infer, driver.move)]
    for thread in threads:
        thread.start()
    try:
        yield driver.done
    finally:
        driver.over.set()
        for thread in threads:
            thread.join(60)


def stall(yard: Yard) -> float:
    with closing(HTTPConnection(yard.metrics, timeout=30)) as connection:
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().splitlines():
            if line.startswith("modelyard_event_loop_stall_seconds_recent_max"):
                return float(line.split()[-1])
    return 0.0


def tell(
    one: Sequence[tuple[str, list[Window], list[Window]]],
    many: tuple[list[Window], list[Window]],
) -> int:
    """Print the figures; 1 when one tab costs more than it may."""
    print("| screen, one tab | control process without | with | the tab | pieces a second |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for screen, without, with_tab in one:
        before = statistics.median(each.control_share for each in without)
        after = statistics.median(each.control_share for each in with_tab)
        rate = statistics.median(each.pieces / each.seconds for each in with_tab)
        worst = max(worst, after - before)
        print(f"| {screen} | {before:.1%} | {after:.1%} | {after - before:+.1%} | {rate:.2f} |")
    print(f"\n| gateway | without | {MANY} tabs |\n|---|---|---|")
    for what, of, form in (
        ("CPU-µs per request", lambda one: one.us_per_request, "{:.0f}"),
        ("worst loop stall of the last minute, ms", lambda one: one.stall_s * 1e3, "{:.1f}"),
        ("control process, share of a core", lambda one: one.control_share * 100, "{:.1f} %"),
    ):
        told = [form.format(statistics.median(map(of, windows))) for windows in many]
        print(f"| {what} | {told[0]} | {told[1]} |")
    print(f"\none tab: {worst:.1%} of a core at most; {MOST_SHARE:.0%} is the bound")
    return int(worst > MOST_SHARE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
