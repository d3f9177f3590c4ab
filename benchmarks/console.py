"""What the console costs: `python -m benchmarks.console`. 200 models of three versions, 100
requests a second on a route that is being rolled out, 100 updates a second from a second server.

Three tables: how long pages take while nothing else happens; what one tab adds to the control
process's CPU, as a share of a core; the gateway's CPU per request, its worst loop stall and the
requests' latency with twenty tabs beside none. CPU comes from the scheduler (/proc), and windows
with and without tabs take turns, so that other load disturbs both alike. A tab is what the page's
script opens: the page once, then its stream, read as it comes.
"""

import argparse
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

from benchmarks.console_yard import (
    ROUTED,
    Requests,
    Yard,
    own_cpu_ns,
    requests,
    say,
    serve,
    updates,
)

MODELS, PUSHED, MANY, LOOKS = 200, 20, 20, 20
MOST_SHARE, MOST_PAGE_S = 0.02, 0.2
SETTLES_S = 2.0
"""After tabs open or close: a page's first piece is of opening it, not of following it."""

STALL_S = 66.0
"""The gateway tells its worst stall of the last 65 s at most: so long is a window that wants it."""

_AFTER = re.compile(rb'data-after="(\d+)"')


@dataclass(frozen=True)
class Window:
    """What one stretch of time cost. CPU in seconds; `took_s` of each request; `stall_s` the worst
    of the gateway's loop lately; `pieces` were read from streams."""

    seconds: float
    control_s: float
    gateway_s: float
    took_s: Sequence[float]
    stall_s: float
    pieces: int

    @property
    def control_share(self) -> float:
        return self.control_s / self.seconds

    @property
    def us_per_request(self) -> float:
        return self.gateway_s * 1e6 / max(1, len(self.took_s))

    def percentile_ms(self, percent: int) -> float:
        return sorted(self.took_s)[len(self.took_s) * percent // 100] * 1e3 if self.took_s else 0.0


@dataclass
class Count:
    """Counted by several threads, read by another: pieces are few, and one lost is no matter."""

    number: int = 0


def main() -> int:
    """Measure and print; 1 when a bound is missed."""
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yard = stack.enter_context(serve(folder, arguments.models, arguments.pushed))
        met = pages(yard)
        followed = ("/", "/models", f"/models/{ROUTED}", f"/rollouts/{yard.rollout}", "/servers")
        stack.enter_context(updates(yard))
        client = stack.enter_context(requests(yard))
        if arguments.rounds:
            met &= one_tab(yard, client, followed, arguments)
        if arguments.many_rounds:
            many_tabs(yard, client, followed, arguments)
    return int(not met)


def pages(yard: Yard) -> bool:
    """Print how long pages take when nothing else happens; whether all keep the bound."""
    say(f"\n| page, idle, median of {LOOKS} | ms | slowest, ms | KiB |\n|---|---|---|---|")
    rollout = f"/rollouts/{yard.rollout}"
    met = True
    for at in ("/", "/models", f"/models/{ROUTED}", "/routes", "/rollouts", rollout, "/requests"):
        took_s, size = [], 0
        for _ in range(LOOKS):
            began = time.monotonic()
            size = len(page(yard, at))
            took_s.append(time.monotonic() - began)
        middle = statistics.median(took_s)
        met &= middle < MOST_PAGE_S
        say(f"| {at} | {middle * 1e3:.0f} | {max(took_s) * 1e3:.0f} | {size / 1024:.0f} |")
    return met


def one_tab(
    yard: Yard, client: Requests, followed: Sequence[str], arguments: argparse.Namespace
) -> bool:
    """Print what a tab at each screen adds; whether all keep the bound."""
    measured: dict[str, list[Window]] = {at: [] for at in ("", *followed)}
    say("")
    for number in range(arguments.rounds):
        for at, windows in measured.items():
            windows.append(window(yard, client, [at] if at else [], arguments.seconds))
            share = windows[-1].control_share
            say(f"round {number + 1}, {at or 'no tab'}: the control process takes {share:.1%}")
    none = measured.pop("")
    met = True
    seconds = sum(one.seconds for one in none)
    say(f"\n| one tab, mean of {seconds:.0f} s | control process | the tab | pieces a second |")
    say("|---|---|---|---|")
    say(f"| none | {_share(none):.1%} | | |")
    for at, windows in measured.items():
        added = _share(windows) - _share(none)
        rate = sum(one.pieces for one in windows) / sum(one.seconds for one in windows)
        met &= added <= MOST_SHARE
        say(f"| {at} | {_share(windows):.1%} | {added:+.1%} | {rate:.2f} |")
    say(f"\none tab may add {MOST_SHARE:.0%}; without any it was {_spread(none)} by window")
    return met


def many_tabs(
    yard: Yard, client: Requests, followed: Sequence[str], arguments: argparse.Namespace
) -> None:
    """Print what the gateway does with many tabs beside none."""
    tabs = [followed[number % len(followed)] for number in range(MANY)]
    none, many = [], []
    for _ in range(arguments.many_rounds):
        say(f"\ntwo windows of {STALL_S:.0f} s, without tabs and with {MANY}")
        none.append(window(yard, client, [], STALL_S))
        many.append(window(yard, client, tabs, STALL_S))
    say(f"\n| gateway, windows of {STALL_S:.0f} s | no tab | {MANY} tabs |\n|---|---|---|")
    for what, of in (
        ("CPU-µs per request", lambda one: f"{one.us_per_request:.0f}"),
        ("worst loop stall, ms", lambda one: f"{one.stall_s * 1e3:.1f}"),
        ("latency, median, ms", lambda one: f"{one.percentile_ms(50):.2f}"),
        ("latency, 99th percentile, ms", lambda one: f"{one.percentile_ms(99):.2f}"),
        ("control process, share of a core", lambda one: f"{one.control_share:.1%}"),
    ):
        told = (", ".join(map(of, windows)) for windows in (none, many))
        say(f"| {what} | {' | '.join(told)} |")


def window(
    yard: Yard,
    client: Requests,
    tabs: Sequence[str],
    seconds: float,
    profiled: AbstractContextManager[None] | None = None,
) -> Window:
    """`profiled`: entered when the tabs are open."""
    pieces = Count()
    with ExitStack() as stack:
        for at in tabs:
            stack.enter_context(tab(yard, at, pieces))
        time.sleep(SETTLES_S)
        if profiled is not None:
            stack.enter_context(profiled)
        control, gateway = own_cpu_ns(yard.control), own_cpu_ns(yard.gateway)
        client.taken()
        began, seen = time.monotonic(), pieces.number
        time.sleep(seconds)
        took = time.monotonic() - began
        return Window(
            took,
            (own_cpu_ns(yard.control) - control) / 1e9,
            (own_cpu_ns(yard.gateway) - gateway) / 1e9,
            client.taken(),
            stall(yard),
            pieces.number - seen,
        )


@contextmanager
def tab(yard: Yard, at: str, pieces: Count) -> Iterator[None]:
    """A page that is looked at and followed from then on; what comes is read and counted."""
    found = _AFTER.search(page(yard, at))
    assert found is not None, f"{at} is not live"
    connection = HTTPConnection(yard.admin, timeout=30)
    asked = f"/live?at={quote(at)}&after={int(found[1])}"
    connection.request("GET", asked, headers={"Cookie": yard.cookie})
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


def page(yard: Yard, at: str) -> bytes:
    with closing(HTTPConnection(yard.admin, timeout=30)) as connection:
        connection.request("GET", at, headers={"Cookie": yard.cookie, "Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200:
        raise HTTPException(f"{at}: {answer.status} {body[:200]!r}")
    return body


def stall(yard: Yard) -> float:
    with closing(HTTPConnection(yard.metrics, timeout=30)) as connection:
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().splitlines():
            if line.startswith("modelyard_event_loop_stall_seconds_recent_max"):
                return float(line.split()[-1])
    return 0.0


def _share(windows: Sequence[Window]) -> float:
    return statistics.mean(one.control_share for one in windows)


def _spread(windows: Sequence[Window]) -> str:
    shares = [one.control_share for one in windows]
    return f"{min(shares):.1%} to {max(shares):.1%}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument(
        "--pushed", type=int, default=PUSHED, help="of the models; each takes 0.25 s"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of windows with one tab")
    parser.add_argument("--seconds", type=float, default=10.0, help="each of them takes")
    parser.add_argument("--many-rounds", type=int, default=1, help="of two windows of 66 s")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
