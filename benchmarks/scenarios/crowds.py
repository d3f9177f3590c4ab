"""Many clients at once, each on a connection of its own: whether one of them waits far longer than
the others."""

from contextlib import ExitStack
from functools import partial

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import modelyard, triton
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import binary_shot, grpc_shot, json_shot

NAME = "crowds"
CONNECTIONS = (200, 1000)
WIRES = (json_shot, binary_shot, grpc_shot)
WORST_OVER_P99 = 3.0


def measure(plan: Plan, report: Report) -> None:
    """The built-in identity model, by each wire."""
    folder = plan.cache / "models" / "serving"
    with ExitStack() as stack:
        roster = Roster(plan, report, stack)
        peers = [
            *roster.enter("modelyard", modelyard.settled(folder, plan.cache, None)),
            *roster.enter("triton", triton.started(plan.triton, folder, plan.cache)),
        ]
        shots = [shot_of(models.identity_problem("identity")) for shot_of in WIRES]
        contests = [
            Contest(
                NAME,
                peer.name,
                shot.wire,
                count,
                partial(
                    fire,
                    shot,
                    peer.address(shot.wire),
                    peer.process,
                    count,
                    plan.duration_s,
                    connections=True,
                ),
            )
            for count in CONNECTIONS
            for shot in shots
            for peer in peers
        ]
        report.rows += interleave(contests, plan.rounds)
