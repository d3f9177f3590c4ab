"""What keeping requests for `modelyard request ID` costs: `python -m benchmarks.request_history`.

One server is asked with the request history and without it, which signals give and take away
(`benchmarks.history_switch`). Two tables:

- *inside*: what its calls take in the gateway by the clock, without those of a function that does
  nothing; the slowest hundredth, in which something else had the core, is left out. Also at 100
  requests a second, where the processor has other code in its caches between them.
- *pairs*: the gateway's CPU time in bursts that take turns. A burst has as many requests as records
  are made of at once, so that each with the history makes them once.

Four minutes; 1 when a figure of the first table is above 1.5 µs a request, or the whole interval
of one in the second.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from benchmarks.bursts import Ask, cpu_ns, grpc_asker, rest_asker
from benchmarks.history_switch import CALLS, ENDED, NOTHING, RECORDS
from benchmarks.models import identity_problem
from benchmarks.process import Process, free_addresses, is_http_ready, port_of, running
from benchmarks.rounds import Spread, spread_of
from benchmarks.shots import Shot, grpc_shot, json_shot
from server.history.history import MOST_WAITING
from server.request_ids import REQUEST_ID

MOST_US = 1.5
WITHOUT, WITH, TIMED = signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP
CONCURRENCY, PER_S = 32, 100
READY_S, WRITTEN_S = 120.0, 10.0
_CONFIG = """
name: "identity"
backend: "identity"
max_batch_size: 64
input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
dynamic_batching {}
"""
CLIENT_ID = f"{REQUEST_ID}: 0b1de32c-order-7731"


class SwitchedServer(NamedTuple):
    """A server that can be switched, and where it writes what calls took."""

    process: Process
    rest: str
    grpc: str
    calls: Path


def main() -> int:
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subject = stack.enter_context(_serve(folder))
        rest, grpc = (shot_of(identity_problem("identity")) for shot_of in (json_shot, grpc_shot))
        own_id = rest._replace(headers=(*rest.headers, CLIENT_ID))
        kinds = (("REST JSON", rest), ("REST JSON, the client's own id", own_id), ("gRPC", grpc))
        met = _inside(subject, kinds, arguments.batches)
        met &= _pairs(subject, kinds, arguments.rounds)
    print(f"\nat most {MOST_US} µs; the machine's load at the end {os.getloadavg()[0]:.1f}")
    return int(not met)


Kinds = tuple[tuple[str, Shot], ...]


def _inside(subject: SwitchedServer, kinds: Kinds, batches: int) -> bool:
    print("| inside, µs a request | requests | a call | its share of making records | together |")
    print("|---|---:|---:|---:|---:|")
    met = True
    for name, shot in kinds:
        for paced in (False, True):
            count = MOST_WAITING * (2 if paced else batches)
            with _asker(subject, shot, 1 if paced else CONCURRENCY) as ask:
                os.kill(subject.process.pid, TIMED)
                _ask_paced(ask, shot, count) if paced else _ask(ask, shot, count)
                call_us, record_us = _calls(subject)
            together = call_us + record_us
            met &= together <= MOST_US
            how = f"{PER_S} a second" if paced else f"{CONCURRENCY} at once"
            cells = f"{call_us:.2f} | {record_us:.2f} | {together:.2f}"
            print(f"| {name}, {how} | {count} | {cells} |", flush=True)
    return met


def _calls(subject: SwitchedServer) -> tuple[float, float]:
    """What the history's calls have taken since TIMED, and their share of making records."""
    os.kill(subject.process.pid, WITH)
    deadline = time.monotonic() + WRITTEN_S
    while not subject.calls.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server has not written {subject.calls}")
        time.sleep(0.05)
    time.sleep(0.5)  # it may be writing
    taken: dict[str, list[int]] = json.loads(subject.calls.read_text())
    subject.calls.unlink()
    call_us = _undisturbed_us(taken[ENDED]) - _undisturbed_us(taken[NOTHING])
    return call_us, median(taken[RECORDS]) / 1e3 / MOST_WAITING


def _undisturbed_us(taken_ns: list[int]) -> float:
    return mean(sorted(taken_ns)[: len(taken_ns) * 99 // 100]) / 1e3


def _pairs(subject: SwitchedServer, kinds: Kinds, rounds: int) -> bool:
    print("\n| in pairs, CPU-µs a request | pairs | without | the history adds | 95 % |")
    print("|---|---:|---:|---:|---|")
    met = True
    for name, shot in kinds:
        with _asker(subject, shot, CONCURRENCY) as ask:
            without_us, added = _paired(subject.process.pid, ask, shot, rounds)
        bounds = f"{added.lower:+.2f} to {added.upper:+.2f}"
        cells = f"{without_us:.1f} | {added.middle:+.2f} | {bounds}"
        print(f"| {name}, {CONCURRENCY} at once | {rounds} | {cells} |", flush=True)
        met &= added.lower <= MOST_US
    return met


def _paired(pid: int, ask: Ask, shot: Shot, rounds: int) -> tuple[float, Spread]:
    """The median without the history, and what it adds in each pair."""
    taken: dict[int, list[float]] = {WITHOUT: [], WITH: []}
    for number in range(rounds):
        for switch in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            os.kill(pid, switch)
            ask([shot])  # when it is answered, the signal has been handled
            before = cpu_ns([pid])[pid]
            _ask(ask, shot, MOST_WAITING)
            taken[switch].append((cpu_ns([pid])[pid] - before) / 1e3 / MOST_WAITING)
    pairs = zip(taken[WITH], taken[WITHOUT], strict=True)
    return median(taken[WITHOUT]), spread_of([one - other for one, other in pairs])


def _ask(ask: Ask, shot: Shot, count: int) -> None:
    for _ in range(count // CONCURRENCY):
        ask([shot])


def _ask_paced(ask: Ask, shot: Shot, count: int) -> None:
    due = time.monotonic()
    for _ in range(count):
        time.sleep(max(0.0, due - time.monotonic()))
        ask([shot])
        due += 1 / PER_S


def _asker(subject: SwitchedServer, shot: Shot, concurrency: int) -> AbstractContextManager[Ask]:
    if shot.wire == "gRPC":
        return grpc_asker(subject.grpc, concurrency)
    return rest_asker(subject.rest, concurrency)


@contextmanager
def _serve(folder: Path) -> Iterator[SwitchedServer]:
    """Ready, and its start over."""
    model = folder / "models" / "identity"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(_CONFIG)
    rest, grpc, metrics = free_addresses(3)
    command = [
        sys.executable, "-m", "benchmarks.history_switch", "serve", "--allow-admin=false",
        f"--model-repository={folder / 'models'}", f"--state-dir={folder / 'state'}",
        f"--http-port={port_of(rest)}", f"--grpc-port={port_of(grpc)}",
        f"--metrics-port={port_of(metrics)}",
    ]  # fmt: skip
    calls = folder / "calls.json"

    def ready() -> bool:
        return is_http_ready(rest, "/v2/health/ready")

    with running(
        "modelyard", command, folder / "log", ready,
        deadline_s=READY_S, environment={CALLS: str(calls)},
    ) as process:  # fmt: skip
        process.wait_idle()
        yield SwitchedServer(process, rest, grpc, calls)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.request_history", description=__doc__
    )
    add = parser.add_argument
    add("--batches", type=int, default=40, help="of 512 requests of each kind, timed inside (40)")
    add("--rounds", type=int, default=100, help="pairs of bursts of each kind (100)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
