"""What a route adds to a request: the same model by its own name and by public ones, in one server,
also with a mirror that never answers."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Shot, grpc_shot, json_shot
from control.desired import Arm, Desired, Mirror, Route

NAME = "routing"
DIRECT, STICKY, DRAWN = "by its own name", "route, unit in a header", "route, a draw each time"
WEDGED = "route, all copied to a wedged mirror"
CONCURRENCY = 32

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
    """Every name over REST and gRPC, interleaved."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        for name, delay_ms in (("one", 0), ("never", _NEVER_MS)):
            _write(folder / name, delay_ms)
        started = modelyard.started(folder, plan.cache, Desired(1, "", routes=_routes()))
        for peer in Roster(plan, report, stack).enter("modelyard", started):
            report.rows += interleave(list(_contests(plan, peer)), plan.rounds)


def _contests(plan: Plan, peer: Peer) -> Iterator[Contest]:
    for shot_of in (json_shot, grpc_shot):
        for entry in _ENTRIES:
            shot = shot_of(models.identity_problem(entry.name))
            shot = shot._replace(headers=(*shot.headers, *entry.headers))
            yield _contest(plan, peer, entry.shown, shot)


def _contest(plan: Plan, peer: Peer, shown: str, shot: Shot) -> Contest:
    address = peer.address(shot.wire)
    once = partial(fire, shot, address, peer.process, CONCURRENCY, plan.duration_s)
    return Contest(NAME, shown, shot.wire, CONCURRENCY, once)


def _routes() -> tuple[Route, ...]:
    # One version behind both arms: batches of two half as large would be counted as routing.
    halves = (Arm("stable", "one", 1, "", 5_000), Arm("candidate", "one", 1, "", 5_000))
    shadowed = (Arm("stable", "one", 1, "", 10_000), Arm("candidate", "never", 1, "", 0))
    unit = "header:x-user"
    return (
        Route("sticky", halves, "salt", unit),
        Route("drawn", halves, "salt"),
        Route("wedging", shadowed, "salt", unit, (), (Mirror("candidate", 10_000),)),
    )


def _write(home: Path, delay_ms: int) -> None:
    (home / "1").mkdir(parents=True)
    delay = _DELAY.format(ms=delay_ms) if delay_ms else ""
    (home / "config.pbtxt").write_text(_CONFIG.format(name=home.name) + delay)
