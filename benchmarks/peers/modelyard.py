"""This server itself, as its command line starts it."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.seam import Peer
from benchmarks.process import (
    POLL_S,
    PeerFailed,
    free_addresses,
    is_http_ready,
    port_of,
    running,
)
from control.desired import DesiredState
from server.desired import disk

NAME = "modelyard"
READY_DEADLINE_S = 120.0
COMMAND_DEADLINE_S = 60.0


@contextmanager
def started(
    repository: Path, cache: Path, desired: DesiredState | None = None, tree: Path | None = None
) -> Iterator[Peer]:
    """`modelyard serve` on one repository with no option but where things are.

    `desired`: what it was last told to do, by a control process that is not there any more.
    `tree`: another checkout, with an environment of its own, to take the server from. Ready means
    /v2/health/ready, so every model is loaded. Raises `PeerFailed`.
    """
    rest, grpc, metrics, admin = free_addresses(4)
    state = _state(cache, rest)
    command = [*_program(tree), "serve", f"--model-repository={repository}"]
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


@contextmanager
def settled(repository: Path, cache: Path, tree: Path | None) -> Iterator[Peer]:
    """The same once its start is over: the control process and the checkers of models work on for
    seconds after it is ready. Raises PeerFailed."""
    with started(repository, cache, tree=tree) as peer:
        peer.process.wait_idle()
        yield peer


def run_command(peer: Peer, words: Sequence[str], cache: Path, tree: Path | None = None) -> None:
    """Run `modelyard WORDS` on a server started here until it succeeds.

    Right after the start the control process may not be there yet, or not know what is loaded.
    Raises PeerFailed with the last refusal.
    """
    line = [*_program(tree), *words, f"--state-dir={_state(cache, peer.rest)}"]

    def refusal() -> str:
        done = subprocess.run(
            line, cwd=tree, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S
        )
        return done.stderr or f"status {done.returncode}" if done.returncode else ""

    _wait(refusal, f"modelyard {' '.join(words)}")


def wait_ready(peer: Peer, model: str) -> None:
    """Wait until a model, or what a route leads to, is ready. Raises PeerFailed."""
    path = f"/v2/models/{model}/ready"
    _wait(lambda: "" if is_http_ready(peer.rest, path) else "not ready", path)


def _wait(missing: Callable[[], str], what: str) -> None:
    """Until nothing is missing. Raises PeerFailed with what still is."""
    until = time.monotonic() + COMMAND_DEADLINE_S
    while reason := missing():
        if time.monotonic() > until:
            raise PeerFailed(f"{NAME}: {what}: {reason}")
        time.sleep(POLL_S)


def _program(tree: Path | None) -> tuple[str, ...]:
    python = sys.executable if tree is None else str(tree / ".venv" / "bin" / "python")
    return python, "-m", "server.cli"


def _state(cache: Path, rest: str) -> Path:
    return cache / "state" / port_of(rest)
