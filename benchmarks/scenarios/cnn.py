"""A MobileNetV2 on one image per request: whether the server lets the runtime run."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import mlserver, modelyard, ort_loop
from benchmarks.peers.seam import Peer
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import binary_shot, grpc_shot, json_shot

NAME = "CNN"
OURS = modelyard.NAME
IN_PROCESS = "in process"
WIRES = {
    OURS: (binary_shot, json_shot, grpc_shot),
    mlserver.NAME: (json_shot, grpc_shot),
}
LONGER = 2.0
"""These requests are few, so each measurement takes this many times as long."""


def measure(plan: Plan, report: Report) -> None:
    """The server, MLServer, and the bare loop at its plausible settings."""
    folder = plan.cache / "models"
    file = models.cnn_file(folder)
    seconds = plan.duration_s * LONGER
    with ExitStack() as stack:
        roster = Roster(plan, report, stack)
        ours = roster.enter("modelyard", modelyard.started(folder / "serving", plan.cache))
        peers = [*ours, *roster.enter("mlserver", mlserver.started(file, plan.cache))]
        loop = stack.enter_context(ort_loop.started(file))
        contests = [
            Contest(
                NAME, f"{ort_loop.NAME}, {setting}", IN_PROCESS, 0, partial(loop, setting, seconds)
            )
            for setting in ort_loop.SETTINGS
        ]
        contests += _contests(plan, peers, seconds)
        report.rows += interleave(contests, plan.rounds)


def _contests(plan: Plan, peers: list[Peer], seconds: float) -> Iterator[Contest]:
    problem = models.cnn_problem(plan.cache / "models")
    for concurrency in plan.image_concurrencies:
        for peer in peers:
            for shot_of in WIRES[peer.name]:
                shot = shot_of(problem)
                address = peer.address(shot.wire)
                once = partial(fire, shot, address, peer.process, concurrency, seconds)
                yield Contest(NAME, peer.name, shot.wire, concurrency, once)
