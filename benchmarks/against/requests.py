"""CPU-µs of a small request: over REST, over gRPC, and over both to the name of a route."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import models
from benchmarks.against.turns import Measurement, Subject
from benchmarks.against.verdict import CPU_US
from benchmarks.load import fire
from benchmarks.models import identity_problem
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.shots import Shot, binary_shot, grpc_shot, json_shot

MODEL = "identity"
CONCURRENCY = 8

# One version behind both arms: batches of two half as large would be counted as routing.
_ARMS = (f"--arm=stable={MODEL}:1=50", f"--arm=candidate={MODEL}:1=50", "--salt=salt")
ROUTES = {"sticky": (*_ARMS, "--unit=header:x-user"), "drawn": _ARMS}
"""Public names, and the arguments of `modelyard route set` that make them."""
UNIT = "x-user: ada"


def _prepare(cache: Path) -> Path:
    models.ensure(cache / "models")
    return cache / "models" / "serving"


@contextmanager
def routing(repository: Path, cache: Path, tree: Path | None) -> Iterator[Peer]:
    """A server with `ROUTES` to its model, made by the tree's own command. Raises PeerFailed."""
    with modelyard.settled(repository, cache, tree) as peer:
        for name, terms in ROUTES.items():
            modelyard.run_command(peer, ["route", "set", name, *terms], cache, tree)
            modelyard.wait_ready(peer, name)
        yield peer


def _cpu_us(name: str, shot: Shot) -> Measurement:
    def measure(peer: Peer, duration_s: float) -> float:
        address = peer.address(shot.wire)
        return fire(shot, address, peer.process, CONCURRENCY, duration_s).cpu_us

    return Measurement(name, CPU_US, measure)


def routed(shot: Shot) -> Shot:
    """The same with a unit, which a route that draws does not look at."""
    return shot._replace(headers=(*shot.headers, UNIT))


_DIRECT, _STICKY, _DRAWN = (identity_problem(name) for name in (MODEL, *ROUTES))

REST = Subject(
    _prepare,
    modelyard.settled,
    (_cpu_us("json", json_shot(_DIRECT)), _cpu_us("binary", binary_shot(_DIRECT))),
)
GRPC = Subject(_prepare, modelyard.settled, (_cpu_us("grpc", grpc_shot(_DIRECT)),))
ROUTING = Subject(
    _prepare,
    routing,
    (
        _cpu_us("json, route, unit in a header", routed(json_shot(_STICKY))),
        _cpu_us("json, route, a draw each time", routed(json_shot(_DRAWN))),
        _cpu_us("grpc, route, unit in a header", routed(grpc_shot(_STICKY))),
        _cpu_us("grpc, route, a draw each time", routed(grpc_shot(_DRAWN))),
    ),
)
