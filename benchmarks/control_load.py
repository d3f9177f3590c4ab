"""What the control process takes: `python -m benchmarks.control_load`. 600 versions, 100 requests a
second spread over all of them, an hour of whose series is there, and 20 tabs with charts: overview,
models, servers, a route.

Windows without tabs and with them take turns; the CPU is the scheduler's (/proc), of the control
process without its children, as a share of a core. `--profile FILE` samples its stacks while the
tabs are open, by py-spy where that is installed. Four minutes; 1 when it takes more than 6 % of a
core.
"""

import argparse
import itertools
import json
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.console import Window, window
from benchmarks.console_yard import REQUESTS_PER_S, ROUTED, VERSIONS, Requests, Yard, say, serve
from control.series.points import WINDOW_S

MODELS, PUSHED, TABS = 200, 20, 20
MOST_SHARE = 0.06
CHARTS = ("/", "/models/{model}", "/servers", "/routes/{route}", "/models/{model}/versions/1")


def main() -> int:
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yard = stack.enter_context(serve(folder, arguments.models, PUSHED))
        client = stack.enter_context(spread(yard, arguments.models))
        pages = itertools.cycle(CHARTS)
        names = (f"m{number:03}" for number in itertools.count(PUSHED - TABS))
        tabs = [next(pages).format(model=next(names), route=ROUTED) for _ in range(TABS)]
        say(f"settling for {arguments.settle:g} s")
        time.sleep(arguments.settle)
        fill_hour(yard)
        none, many = [], []
        for _ in range(arguments.rounds):
            none.append(window(yard, client, [], arguments.seconds))
            profiled = _profiled(yard, arguments)
            many.append(window(yard, client, tabs, arguments.seconds, profiled))
        return _told(none, many)


def _told(none: Sequence[Window], many: Sequence[Window]) -> int:
    say("\n| | no tab | 20 tabs of charts |\n|---|---|---|")
    for what, of in (
        ("control process, share of a core", lambda one: f"{one.control_share:.1%}"),
        ("gateway, CPU-µs per request", lambda one: f"{one.us_per_request:.0f}"),
        ("requests a second", lambda one: f"{len(one.took_s) / one.seconds:.0f}"),
        ("pieces of pages a second", lambda one: f"{one.pieces / one.seconds:.2f}"),
    ):
        cells = (", ".join(map(of, windows)) for windows in (none, many))
        say(f"| {what} | {' | '.join(cells)} |")
    share = statistics.mean(one.control_share for one in many)
    say(f"\nwith tabs {share:.1%}; at most {MOST_SHARE:.0%}")
    return int(share > MOST_SHARE)


@contextmanager
def spread(yard: Yard, models: int) -> Iterator[Requests]:
    """One client at a steady pace that asks every version in turn."""
    made = Requests(yard.http)
    thread = threading.Thread(target=_send, args=(made, models))
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        thread.join(60)


def fill_hour(yard: Yard) -> None:
    """The newest complete window again for each one of the hour before it."""
    with closing(sqlite3.connect(yard.database.removeprefix("sqlite:///"), timeout=60)) as database:
        newest = "SELECT server_id, at, boot, payload FROM series_window ORDER BY at DESC LIMIT 1"
        server, at, boot, payload = database.execute(newest).fetchone()
        rows = [(server, then, boot, payload) for then in range(at - 3600, at, WINDOW_S)]
        database.executemany("INSERT OR IGNORE INTO series_window VALUES (?, ?, ?, ?)", rows)
        database.commit()


def _send(made: Requests, models: int) -> None:
    tensor = {"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "data": [0.0] * 16}
    body = json.dumps({"inputs": [tensor]})
    numbers = itertools.cycle(range(models * VERSIONS))
    with closing(HTTPConnection(made.http, timeout=60)) as connection:
        due = time.monotonic()
        while not made.over.wait(max(0.0, due - time.monotonic())):
            number = next(numbers)
            path = f"/v2/models/m{number // VERSIONS:03}/versions/{number % VERSIONS + 1}/infer"
            began = time.monotonic()
            connection.request("POST", path, body)
            connection.getresponse().read()
            made.took_s.append(time.monotonic() - began)
            due = max(due + 1 / REQUESTS_PER_S, began - 1.0)  # what is late is left out


@contextmanager
def _profiled(yard: Yard, arguments: argparse.Namespace) -> Iterator[None]:
    if not arguments.profile:
        yield
        return
    seconds = str(int(arguments.seconds))
    command = ["py-spy", "record", "-p", str(yard.control), "-o", arguments.profile]
    child = subprocess.Popen([*command, "-f", "raw", "-d", seconds, "--nonblocking"])
    try:
        yield
    finally:
        child.wait(60)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_load", description=__doc__)
    parser.add_argument("--models", type=int, default=MODELS, help=f"of {VERSIONS} versions each")
    parser.add_argument("--seconds", type=float, default=40.0, help="each window takes")
    parser.add_argument("--rounds", type=int, default=2, help="of two windows")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before the first")
    parser.add_argument("--profile", default="", help="a file for stacks of the control process")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
