"""Load from h2load: cheap enough (some 15 µs a request) to share two cores with the server."""

import math
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.process import Process
from benchmarks.shots import Shot, WrongAnswer, answer_size

WARM_S = 0.3
GRACE_S = 60.0
PRESS_S = 600.0
SHORT_ANSWER = 0.9
"""Answers smaller on average than this share of the right one are errors in disguise: h2load does
not look at grpc-status, and an error carries no tensor."""


class NoLoadGenerator(Exception):
    """h2load is not installed; the message says where it comes from."""


class Sample(NamedTuple):
    """One measurement; `cpu_us` is the server's CPU time per request, its children included,
    `load_cpu_us` the load generator's. `worst_ms` is the slowest request's latency, `idle_cores`
    how many cores of the machine did nothing."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    worst_ms: float = math.nan
    load_cpu_us: float = math.nan
    idle_cores: float = math.nan


def load_generator() -> str:
    """The path of h2load; raises `NoLoadGenerator`."""
    found = shutil.which("h2load")
    if found is None:
        raise NoLoadGenerator("h2load is not on PATH; install it: apt-get install nghttp2-client")
    return found


def fire(
    shot: Shot,
    address: str,
    process: Process,
    concurrency: int,
    duration_s: float,
    *,
    per_second: int | None = None,
    connections: bool = False,
) -> Sample:
    """Repeat a shot at one peer for a while; `per_second` limits the rate over all connections.
    `connections`: each request that is under way has one, also over gRPC.

    The answer is verified before and after; raises `WrongAnswer` if it is wrong then, or if
    answers in between had another status than 2xx or were too short to be right.
    """
    size = answer_size(shot, address)
    rate = () if per_second is None else (f"--rps={max(1, per_second // concurrency)}",)
    with tempfile.TemporaryDirectory() as folder:
        command = _command(shot, address, concurrency, Path(folder), connections)
        _run([*command, _lasting(WARM_S)], WARM_S)
        log = Path(folder) / "log"
        before, before_load, before_idle = process.cpu_ns(), _children_cpu_s(), _idle_s()
        began = time.monotonic()
        output = _run([*command, *rate, _lasting(duration_s), f"--log-file={log}"], duration_s)
        idle_cores = (_idle_s() - before_idle) / (time.monotonic() - began)
        cpu_ns, load_s = process.cpu_ns() - before, _children_cpu_s() - before_load
        rows = np.loadtxt(log, dtype=np.int64, ndmin=2)
    _check(shot, address, rows, output, size)
    answer_size(shot, address)
    return _sample(rows[:, 2], duration_s, cpu_ns)._replace(
        load_cpu_us=load_s * 1e6 / len(rows), idle_cores=idle_cores
    )


@contextmanager
def pressing(shot: Shot, address: str, concurrency: int) -> Iterator[None]:
    """Repeat a shot at a peer for as long as the block runs; its answers are not measured.

    Raises `WrongAnswer` if the peer does not answer it rightly to begin with.
    """
    answer_size(shot, address)
    with tempfile.TemporaryDirectory() as folder:
        command = _command(shot, address, concurrency, Path(folder))
        press = subprocess.Popen([*command, _lasting(PRESS_S)], stdout=subprocess.DEVNULL)
        try:
            yield
            if press.poll() is not None:
                raise WrongAnswer(f"{shot.problem.model} at {address}: the press ended early")
        finally:
            press.kill()
            press.wait()


def _command(
    shot: Shot, address: str, concurrency: int, folder: Path, connections: bool = False
) -> list[str]:
    """gRPC: so many streams on one connection, as clients do it, unless they are to be
    `connections`; REST: so many connections."""
    body = folder / "body"
    body.write_bytes(shot.body)
    grpc = ["-m1", f"-c{concurrency}"] if connections else ["-c1", f"-m{concurrency}"]
    how = grpc if shot.wire == "gRPC" else ["--h1", f"-c{concurrency}"]
    headers = [f"-H{header}" for header in shot.headers]
    return [load_generator(), "-t1", *how, f"-d{body}", *headers, f"http://{address}{shot.path}"]


def _lasting(seconds: float) -> str:
    return f"-D{round(seconds * 1000)}ms"


def _run(command: list[str], duration_s: float) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=duration_s + GRACE_S, check=True
    )
    return done.stdout


def _check(shot: Shot, address: str, rows: np.ndarray, output: str, size: int) -> None:
    who = f"{shot.problem.model} over {shot.wire} at {address}"
    if len(rows) == 0:
        raise WrongAnswer(f"{who}: no request was answered in time\n{output}")
    failed = rows[(rows[:, 1] < 200) | (rows[:, 1] > 299)]
    if len(failed):
        raise WrongAnswer(f"{who}: {len(failed)} of {len(rows)} failed, status {failed[0][1]}")
    found = re.search(r"\((\d+)\) data", output)
    if found is None or int(found[1]) < SHORT_ANSWER * size * len(rows):
        raise WrongAnswer(f"{who}: answers shorter than the {size} bytes of a right one\n{output}")


def _sample(latencies_us: np.ndarray, duration_s: float, cpu_ns: int) -> Sample:
    p50, p99 = np.percentile(latencies_us, (50, 99)) / 1e3
    count = len(latencies_us)
    worst = float(latencies_us.max()) / 1e3
    return Sample(count, count / duration_s, float(p50), float(p99), cpu_ns / 1e3 / count, worst)


def _children_cpu_s() -> float:
    """Of load generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _idle_s() -> float:
    """Of all cores of the machine together, waiting for disks included."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
