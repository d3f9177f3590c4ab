"""Sixteen floats there and back: what a request costs when the model costs nothing."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import asgi_echo, grpc_echo, mlserver, modelyard, triton
from benchmarks.peers.seam import Peer
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import Shot, binary_shot, grpc_shot, json_shot

NAME = "identity"
BUILT_IN = "modelyard, built-in"
ONNX = "modelyard, ONNX graph"
GRPC_ECHOES = tuple(f"bare grpcio {kind}" for kind in grpc_echo.KINDS)


def measure(plan: Plan, report: Report) -> None:
    """Every peer over every wire it speaks, at every concurrency."""
    with ExitStack() as stack:
        roster = Roster(plan, report, stack)
        entries = list(_entries(plan, roster))
        contests = [
            _contest(plan, concurrency, name, peer, shot)
            for concurrency in plan.concurrencies
            for name, peer, shot in entries
        ]
        report.rows += interleave(contests, plan.rounds)


def _entries(plan: Plan, roster: Roster) -> Iterator[tuple[str, Peer, Shot]]:
    """Name in the table, peer, and the shot it gets; REST first, then gRPC. Of binary tensors the
    echoes and MLServer know nothing."""
    cache = plan.cache
    ours = roster.enter("modelyard", modelyard.started(cache / "models" / "serving", cache))
    cnn = models.cnn_file(cache / "models")
    mlservers = roster.enter("mlserver", mlserver.started(cnn, cache))
    asgi = roster.enter("asgi", asgi_echo.started(cache))
    serving = cache / "models" / "serving"
    tritons = roster.enter("triton", triton.started(plan.triton, serving, cache))
    echoes = [
        peer
        for kind in grpc_echo.KINDS
        for peer in roster.enter("grpcio", grpc_echo.started(kind, cache))
    ]
    own, graph = (models.identity_problem(name) for name in ("identity", "identity_onnx"))
    for shot_of, bare in ((json_shot, asgi), (grpc_shot, echoes)):
        for peer in ours:
            yield BUILT_IN, peer, shot_of(own)
            yield ONNX, peer, shot_of(graph)
        for peer in (*bare, *mlservers, *tritons):
            yield peer.name, peer, shot_of(own)
    for peer in ours:
        yield BUILT_IN, peer, binary_shot(own)
        yield ONNX, peer, binary_shot(graph)
    for peer in tritons:
        yield peer.name, peer, binary_shot(own)


def _contest(plan: Plan, concurrency: int, name: str, peer: Peer, shot: Shot) -> Contest:
    address = peer.address(shot.wire)
    once = partial(fire, shot, address, peer.process, concurrency, plan.duration_s)
    return Contest(NAME, name, shot.wire, concurrency, once)
