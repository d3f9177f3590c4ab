"""64 sequences that live at once, beside the dynamic batcher on the same graph."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson

from benchmarks import models
from benchmarks.peers import modelyard
from benchmarks.report import Report
from benchmarks.rounds import Plan
from benchmarks.scenarios.roster import Roster
from benchmarks.scenarios.turns import Turns, take
from benchmarks.shots import Shot, answer_size, json_shot

NAME = "sequences"
DYNAMIC, DIRECT, OLDEST = "dynamic batcher", "sequences, direct", "sequences, oldest"
LIVE = 64
"""Sequences at once, each over a connection of its own, none of which ends."""
BURSTS = 200
"""For each round asked for."""

_IDLE_US = 600_000_000
_CONFIG = """
backend: "onnxruntime"
max_batch_size: 64
instance_group {{ count: 1 kind: KIND_CPU }}
{batching}
"""
_MODELS = {
    DYNAMIC: ("dynamic", "dynamic_batching {}"),
    DIRECT: (
        "direct",
        f"sequence_batching {{ max_sequence_idle_microseconds: {_IDLE_US} direct {{}} }}",
    ),
    OLDEST: (
        "oldest",
        f"sequence_batching {{ max_sequence_idle_microseconds: {_IDLE_US} "
        f"oldest {{ max_candidate_sequences: {LIVE} }} }}",
    ),
}


def measure(plan: Plan, report: Report) -> None:
    """One graph under three schedulers, each on one instance; all are sent the same bodies."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        for name, batching in _MODELS.values():
            models.save(models.identity_graph(), folder / name)
            (folder / name / "config.pbtxt").write_text(_CONFIG.format(batching=batching))
        roster = Roster(plan, report, stack)
        for peer in roster.enter("modelyard", modelyard.started(folder, plan.cache)):
            peer.process.wait_idle()
            for name, _ in _MODELS.values():
                for shot in _shots(name, start=True):
                    answer_size(shot, peer.rest)
            for turns in _turns(plan):
                report.ratios += take(peer, turns)


def _turns(plan: Plan) -> Iterator[Turns]:
    kinds = {shown: _shots(name, start=False) for shown, (name, _) in _MODELS.items()}
    pairs = ((DIRECT, DYNAMIC), (OLDEST, DYNAMIC))
    yield Turns(NAME, kinds, pairs, LIVE, BURSTS * plan.rounds)


def _shots(model: str, *, start: bool) -> list[Shot]:
    """A request of each sequence."""
    shot = json_shot(models.identity_problem(model))
    body = orjson.loads(shot.body)
    return [
        shot._replace(body=orjson.dumps({**body, "parameters": _membership(number, start)}))
        for number in range(1, LIVE + 1)
    ]


def _membership(number: int, start: bool) -> dict[str, int | bool]:
    return {"sequence_id": number, "sequence_start": start, "sequence_end": False}
