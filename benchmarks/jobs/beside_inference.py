"""Inference beside a job: `python -m benchmarks.jobs.beside_inference`.

A server answers requests of the example `digits` that come evenly at a rate, whatever answers there
are. Beside it a job prunes and trains a CNN, in a process such as a worker starts, and is stopped
and goes on by turns. Latencies begin when a request is due.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.jobs.profile_search import built
from benchmarks.jobs.smaller_cnn import trained
from control.jobs.messages import Task
from control.jobs.specs.prune import PruneSpec
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import LEADER, JobProgram
from jobs.tools.profile.changed_config import measured
from jobs.tools.profile.clients import percentile
from jobs.tools.profile.replay import replay
from jobs.tools.profile.requests import make_requests
from jobs.tools.profile.served import ProfiledServer
from jobs.tools.result.config import read_config
from repository.files.owner import pid_of

CONNECTIONS = 32
START_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs.beside_inference", description=__doc__
    )
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one window")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="of the job")
    given = parser.parse_args()
    arrivals = [one / given.rate for one in range(int(given.rate))]
    found: dict[str, list[list[float]]] = {"idle": [], "beside a job": []}
    with tempfile.TemporaryDirectory(prefix="beside-") as place:
        folder = Path(place)
        source = built("digits", folder / "source")
        config = measured(read_config(source))
        requests = make_requests(config, 1, "", 1)
        (folder / "served").mkdir()
        with ProfiledServer(folder / "served", source, config) as server, job(folder, given) as pid:
            server.load(config)
            for _ in range(given.rounds):
                for name, number in (("idle", signal.SIGSTOP), ("beside a job", signal.SIGCONT)):
                    os.killpg(pid, number)
                    load = replay(
                        server.socket, requests, arrivals, 1.0, CONNECTIONS, given.seconds
                    )
                    found[name].append(sorted(load.latencies_ms))
    _print(found)


def _print(found: dict[str, list[list[float]]]) -> None:
    print("| | p50 ms | p99 ms |\n|---|---|---|")
    for name, windows in found.items():
        cells = (statistics.median(percentile(one, of) for one in windows) for of in (50, 99))
        print(f"| {name} | {' | '.join(f'{one:.2f}' for one in cells)} |")
    for of in (50, 99):
        ratios = [
            percentile(beside, of) / percentile(idle, of)
            for idle, beside in zip(found["idle"], found["beside a job"], strict=True)
        ]
        print(
            f"p{of} beside / idle, median of {len(ratios)} pairs: {statistics.median(ratios):.2f}"
        )
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


@contextmanager
def job(folder: Path, given: argparse.Namespace) -> Iterator[int]:
    """A job that trains until the end; the number of its process."""
    source = trained(folder / "cnn", 1, 0)
    root = folder / "job"
    output, scratch = root / "output", root / "scratch"
    for one in (output, scratch):
        one.mkdir(parents=True)
    spec = PruneSpec(model="digits16", version=1, epochs=1000, floor=100.0)
    task = Task("1", spec, str(source), {}, "", str(output), str(scratch), given.threads, 1)
    (root / "task.json").write_bytes(msgspec.json.encode(task))
    program = JobProgram(sys.executable, root / "task.json", output, scratch, None, "a job")
    process = JobProcess(program, ProcessLimits(threads=given.threads))
    running = threading.Thread(target=process.run)
    running.start()
    try:
        yield _training(process, root / LEADER)
    finally:
        process.abandon("the benchmark is over")
        running.join()


def _training(process: JobProcess, leader: Path) -> int:
    """Wait until it trains; its number."""
    until = time.monotonic() + START_S
    while not process.take_news().points:
        if time.monotonic() > until:
            raise RuntimeError(f"the job does not train after {START_S:g} s")
        time.sleep(0.1)
    found = pid_of(leader.read_text())
    assert found is not None
    return found


if __name__ == "__main__":
    main()
