"""What a process of its own costs a batch: the same model with `isolation: process` and without.

One request is one batch of 64 KiB, the same bytes each way.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.bursts import compare, rest_asker
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.process import family
from benchmarks.report import Added, Report
from benchmarks.rounds import Plan
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Problem, answer_size, binary_shot

NAME = "isolation"
INSIDE, ISOLATED = "a batch of 64 KB inside the server", "the same in a process of its own"
PAIRS = ((ISOLATED, INSIDE),)
CONCURRENCY = 1
"""So that no two requests share a batch."""
BURSTS = 400
"""For each round asked for."""
WIDTH = 16_384

_MODELS = {INSIDE: "inside", ISOLATED: "isolated"}
_CONFIG = f"""
backend: "identity"
max_batch_size: 8
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: {WIDTH} }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: {WIDTH} }}
instance_group {{ kind: KIND_CPU }}
"""
_ISOLATION = 'parameters { key: "isolation" value { string_value: "process" } }\n'


def measure(plan: Plan, report: Report) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        _write(folder)
        roster = Roster(plan, report, stack)
        for peer in roster.enter("modelyard", modelyard.started(folder, plan.cache)):
            peer.process.wait_idle()
            report.added += _added(peer, BURSTS * plan.rounds)


def _added(peer: Peer, bursts: int) -> list[Added]:
    row = np.random.default_rng(3).standard_normal((1, WIDTH), dtype=np.float32)
    kinds = {
        shown: (binary_shot(Problem(model, "INPUT0", row, "OUTPUT0", row)),)
        for shown, model in _MODELS.items()
    }
    for (shot,) in kinds.values():
        answer_size(shot, peer.rest)
    with rest_asker(peer.rest, CONCURRENCY) as ask:
        pids = family(peer.process.pid)
        found = compare(pids, ask, kinds, PAIRS, concurrency=CONCURRENCY, rounds=bursts)
    return [
        Added("REST binary", shown, base, bursts, more.base_us, more.us)
        for (shown, base), more in found.items()
    ]


def _write(folder: Path) -> None:
    for name, more in (("inside", ""), ("isolated", _ISOLATION)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(_CONFIG + more)
