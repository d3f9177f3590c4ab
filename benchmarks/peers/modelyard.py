"""This server itself, as its command line starts it."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.seam import Peer
from benchmarks.process import free_addresses, is_http_ready, port_of, running
from control.desired import Desired
from server.desired import disk

NAME = "modelyard"
READY_DEADLINE_S = 120.0


@contextmanager
def started(
    repository: Path, cache: Path, desired: Desired | None = None, tree: Path | None = None
) -> Iterator[Peer]:
    """`modelyard serve` on one repository with no option but where things are.

    `desired`: what it was last told to do, by a control process that is not there any more.
    `tree`: another checkout, with an environment of its own, to take the server from. Ready means
    /v2/health/ready, so every model is loaded. Raises `PeerFailed`.
    """
    rest, grpc, metrics, admin = free_addresses(4)
    state = cache / "state" / port_of(rest)
    python = sys.executable if tree is None else str(tree / ".venv" / "bin" / "python")
    command = [python, "-m", "server.cli", "serve", f"--model-repository={repository}"]
    command += [f"--http-port={port_of(rest)}", f"--grpc-port={port_of(grpc)}"]
    command += [f"--metrics-port={port_of(metrics)}", f"--admin-port={port_of(admin)}"]
    command += [f"--state-dir={state}"]
    if desired is not None:
        state.mkdir(parents=True)
        disk.keep(state, desired)
        command += ["--allow-admin=false", "--exit-timeout-secs=1"]
    kind = repository.name if tree is None else f"{repository.name}_{tree.name}"
    log = cache / "logs" / f"modelyard_{kind}.log"
    try:
        with running(
            NAME,
            command,
            log,
            lambda: is_http_ready(rest, "/v2/health/ready"),
            deadline_s=READY_DEADLINE_S,
            folder=tree,
        ) as process:
            yield Peer(NAME, process, rest, grpc, metrics)
    finally:
        shutil.rmtree(state, ignore_errors=True)
