"""Small requests while others send images as JSON: whether one client's parsing is felt by all."""

import math
from contextlib import ExitStack

from benchmarks import models
from benchmarks.load import Sample, fire, pressing
from benchmarks.peers import mlserver, modelyard
from benchmarks.peers.seam import Peer
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import json_shot

NAME = "small requests, 200/s"
CONCURRENCY = 8
PER_SECOND = 200
"""Far below what a server can do: the tail then shows who is kept waiting, not who is slow."""
IMAGE_CLIENTS = 4
LONGER = 2.0


def measure(plan: Plan, report: Report) -> None:
    """The server and MLServer, alone and under JSON images from four clients."""
    folder = plan.cache / "models"
    with ExitStack() as stack:
        roster = Roster(plan, report, stack)
        ours = roster.enter("modelyard", modelyard.started(folder / "serving", plan.cache))
        theirs = roster.enter("mlserver", mlserver.started(models.cnn_file(folder), plan.cache))
        contests = [
            contest for peer in (*ours, *theirs) for contest in _alone_and_beside(plan, peer)
        ]
        report.rows += interleave(contests, plan.rounds)


def _alone_and_beside(plan: Plan, peer: Peer) -> tuple[Contest, Contest]:
    small = json_shot(models.identity_problem("identity"))
    image = json_shot(models.cnn_problem(plan.cache / "models"))
    seconds = plan.duration_s * LONGER

    def alone() -> Sample:
        return fire(small, peer.rest, peer.process, CONCURRENCY, seconds, per_second=PER_SECOND)

    def beside() -> Sample:
        """The server's CPU time is the images' here, so it is left out."""
        with pressing(image, peer.rest, IMAGE_CLIENTS):
            return alone()._replace(cpu_us=math.nan)

    return (
        Contest(NAME, f"{peer.name}, alone", small.wire, CONCURRENCY, alone),
        Contest(NAME, f"{peer.name}, beside JSON images", small.wire, CONCURRENCY, beside),
    )
