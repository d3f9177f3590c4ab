"""What a route adds to a request: the same model by its own name and by public ones, in one server,
also with a mirror that never answers. What such a mirror does to memory and to the event loop is
seen in servers of their own.

What a route adds is a few microseconds, so it is taken from bursts that take turns
(`benchmarks.bursts`); the rows of load are beside them for how the whole behaves."""

import math
import re
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import models
from benchmarks.bursts import compare, grpc_asker, rest_asker
from benchmarks.load import fire
from benchmarks.peers import asgi_echo, modelyard
from benchmarks.peers.seam import Peer
from benchmarks.report import Added, Figure, Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Problem, Shot, answer_size, grpc_shot, json_shot
from control.desired import DesiredArm, DesiredRoute, DesiredState, Mirror

NAME = "routing"
DIRECT, STICKY, DRAWN = "by its own name", "route, unit in a header", "route, a draw each time"
WEDGED = "route, all copied to a wedged mirror"
PAIRS = ((STICKY, DIRECT), (DRAWN, DIRECT), (WEDGED, STICKY))
"""Names, and what each is held against."""

CONCURRENCY = 32
BURSTS = 200
"""Of each name over each wire, for each round asked for."""

STALL, GROWN = "gRPC, longest loop stall", "gRPC, RSS grown under load"
MB = 1e6

_NEVER_MS = 3_600_000
_UNIT = "x-user: ada"
_CONFIG = """
name: "{name}"
backend: "identity"
max_batch_size: 64
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
dynamic_batching {{}}
"""
_DELAY = 'parameters {{ key: "execute_delay_ms" value {{ string_value: "{ms}" }} }}\n'


class _Entry(NamedTuple):
    """A name in the table, the public name that is asked, and the header that brings the unit."""

    shown: str
    name: str
    headers: tuple[str, ...] = ()


_ENTRIES = (
    _Entry(DIRECT, "one", (_UNIT,)),
    _Entry(STICKY, "sticky", (_UNIT,)),
    _Entry(DRAWN, "drawn", (_UNIT,)),
    _Entry(WEDGED, "wedging", (_UNIT,)),
)


def measure(plan: Plan, report: Report) -> None:
    """Every name over REST and gRPC, in turn with the bare limit of REST."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        for name, delay_ms in (("one", 0), ("never", _NEVER_MS)):
            _write(folder / name, delay_ms)
        roster = Roster(plan, report, stack)
        ours = roster.enter("modelyard", _started(plan, folder))
        bare = roster.enter("asgi", asgi_echo.started(plan.cache)) if ours else []
        contests = [contest for peer in ours for contest in _contests(peer, plan.duration_s)]
        shot = json_shot(models.identity_problem("identity"))
        contests += [_contest(peer, peer.name, shot, plan.duration_s) for peer in bare]
        report.rows += interleave(contests, plan.rounds)
        for peer in ours:
            report.added += _added(peer, BURSTS * plan.rounds)
        if ours:
            report.figures += _figures(plan, folder)


def _added(peer: Peer, rounds: int) -> Iterator[Added]:
    for shot_of, asker in ((json_shot, rest_asker), (grpc_shot, grpc_asker)):
        shots = {entry.shown: _shot(shot_of, entry) for entry in _ENTRIES}
        wire = shots[DIRECT].wire
        address = peer.address(wire)
        for shot in shots.values():
            answer_size(shot, address)
        with asker(address, CONCURRENCY) as ask:
            kinds = {shown: (shot,) for shown, shot in shots.items()}
            pids = (peer.process.pid,)
            found = compare(pids, ask, kinds, PAIRS, concurrency=CONCURRENCY, rounds=rounds)
        for (shown, base), more in found.items():
            yield Added(wire, shown, base, rounds, more.base_us, more.us)


def _figures(plan: Plan, folder: Path) -> list[Figure]:
    """With a mirror that hangs and without one, in turn, each time in a server just started."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(plan.rounds):
        for entry in _ENTRIES:
            if entry.shown in (STICKY, WEDGED):
                stall_ms, grown_mb = _under_load(plan, folder, entry)
                found.setdefault((f"{STALL}: {entry.shown}", "ms"), []).append(stall_ms)
                found.setdefault((f"{GROWN}: {entry.shown}", "MB"), []).append(grown_mb)
    return [Figure(name, median(values), unit) for (name, unit), values in found.items()]


def _under_load(plan: Plan, folder: Path, entry: _Entry) -> tuple[float, float]:
    """Milliseconds of the longest stall since the server was ready, and megabytes by which it has
    grown since it was warm."""
    with _started(plan, folder) as peer:
        once = _contest(peer, entry.shown, _shot(grpc_shot, entry), plan.duration_s).measure
        once()
        before = peer.process.rss_bytes()
        once()
        return _stall_ms(peer), (peer.process.rss_bytes() - before) / MB


def _stall_ms(peer: Peer) -> float:
    with urllib.request.urlopen(f"http://{peer.metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = re.search(r"^modelyard_event_loop_stall_seconds_max\S* (\S+)$", text, re.MULTILINE)
    return float(found[1]) * 1e3 if found else math.nan


def _started(plan: Plan, folder: Path) -> AbstractContextManager[Peer]:
    return modelyard.started(folder, plan.cache, DesiredState(1, "", routes=_routes()))


def _contests(peer: Peer, duration_s: float) -> Iterator[Contest]:
    for shot_of in (json_shot, grpc_shot):
        for entry in _ENTRIES:
            yield _contest(peer, entry.shown, _shot(shot_of, entry), duration_s)


def _shot(shot_of: Callable[[Problem], Shot], entry: _Entry) -> Shot:
    shot = shot_of(models.identity_problem(entry.name))
    return shot._replace(headers=(*shot.headers, *entry.headers))


def _contest(peer: Peer, shown: str, shot: Shot, duration_s: float) -> Contest:
    address = peer.address(shot.wire)
    once = partial(fire, shot, address, peer.process, CONCURRENCY, duration_s)
    return Contest(NAME, shown, shot.wire, CONCURRENCY, once)


def _routes() -> tuple[DesiredRoute, ...]:
    # One version behind both arms: batches of two half as large would be counted as routing.
    halves = (
        DesiredArm("stable", "one", 1, "", 5_000),
        DesiredArm("candidate", "one", 1, "", 5_000),
    )
    shadowed = (
        DesiredArm("stable", "one", 1, "", 10_000),
        DesiredArm("candidate", "never", 1, "", 0),
    )
    unit = "header:x-user"
    return (
        DesiredRoute("sticky", halves, "salt", unit),
        DesiredRoute("drawn", halves, "salt"),
        DesiredRoute("wedging", shadowed, "salt", unit, (), (Mirror("candidate", 10_000),)),
    )


def _write(home: Path, delay_ms: int) -> None:
    (home / "1").mkdir(parents=True)
    delay = _DELAY.format(ms=delay_ms) if delay_ms else ""
    (home / "config.pbtxt").write_text(_CONFIG.format(name=home.name) + delay)
