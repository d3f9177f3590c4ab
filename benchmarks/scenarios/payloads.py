"""Requests of one and of sixteen megabytes, there and back, beside one of 64 bytes."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.load import fire
from benchmarks.peers import modelyard, triton
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Problem, binary_shot, grpc_shot

NAME = "payloads"
BYTES = {"64 B": 64, "1 MB": 1 << 20, "16 MB": 16 << 20}
WIRES = (binary_shot, grpc_shot)
CONCURRENCY = 4

_MODEL = "wide"
_CONFIG = """
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
instance_group { kind: KIND_CPU }
"""


def measure(plan: Plan, report: Report) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        (folder / _MODEL / "1").mkdir(parents=True)
        (folder / _MODEL / "config.pbtxt").write_text(_CONFIG)
        roster = Roster(plan, report, stack)
        peers = [
            *roster.enter("modelyard", modelyard.settled(folder, plan.cache, None)),
            *roster.enter("triton", triton.started(plan.triton, folder, plan.cache)),
        ]
        contests = []
        for shown, size in BYTES.items():
            row = np.random.default_rng(3).standard_normal((1, size // 4), dtype=np.float32)
            problem = Problem(_MODEL, "INPUT0", row, "OUTPUT0", row)
            for shot in (shot_of(problem) for shot_of in WIRES):
                for peer in peers:
                    address = peer.address(shot.wire)
                    once = partial(fire, shot, address, peer.process, CONCURRENCY, plan.duration_s)
                    who = f"{peer.name}, {shown}"
                    contests.append(Contest(NAME, who, shot.wire, CONCURRENCY, once))
        report.rows += interleave(contests, plan.rounds)
