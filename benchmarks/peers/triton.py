"""Triton, where somebody has it: a `tritonserver` with its backends, on the same models."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.seam import Peer, PeerUnavailable
from benchmarks.process import free_addresses, is_http_ready, port_of, running

NAME = "Triton"
READY_DEADLINE_S = 120.0
LEFT_OUT = "Triton: give its program with --triton PATH"


@contextmanager
def started(program: Path | None, repository: Path, cache: Path) -> Iterator[Peer]:
    """It serves a copy of the repository, which it may not complete as we do. Its backends lie
    where it was built to look for them, or in `backends` beside its folder.

    Raises PeerUnavailable without a `program`, PeerFailed when it does not start.
    """
    if program is None:
        raise PeerUnavailable(LEFT_OUT)
    rest, grpc, metrics = free_addresses(3)
    models = cache / "triton" / repository.name
    shutil.rmtree(models, ignore_errors=True)
    shutil.copytree(repository, models)
    command = [str(program), f"--model-repository={models}"]
    command += [f"--http-port={port_of(rest)}", f"--grpc-port={port_of(grpc)}"]
    command += [f"--metrics-port={port_of(metrics)}"]
    backends = program.resolve().parent.parent / "backends"
    if backends.is_dir():
        command.append(f"--backend-directory={backends}")
    with running(
        NAME,
        command,
        cache / "logs" / "triton.log",
        lambda: is_http_ready(rest, "/v2/health/ready"),
        deadline_s=READY_DEADLINE_S,
    ) as process:
        yield Peer(NAME, process, rest, grpc, metrics)
