"""The bare limit of the CNN: onnxruntime sessions in a closed loop, with no server around them.

`python -m benchmarks.peers.ort_loop MODEL` reads lines "SESSIONS THREADS BATCH SECONDS" from its
input and answers each with images per second and CPU-µs per image.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime

from benchmarks.load import Sample
from benchmarks.process import PeerFailed

NAME = "bare onnxruntime"
IMAGE = (3, 224, 224)


class Setting(NamedTuple):
    """One way to use two cores."""

    sessions: int
    threads: int
    batch: int

    def __str__(self) -> str:
        return f"{self.sessions} × {self.threads} threads, batch {self.batch}"


SETTINGS = (Setting(2, 1, 1), Setting(1, 2, 1), Setting(2, 1, 8))

Measure = Callable[[Setting, float], Sample]


@contextmanager
def started(model: Path) -> Iterator[Measure]:
    """A process with the loop; what is yielded measures one setting for some seconds.

    It raises `PeerFailed` when the process has ended.
    """
    command = [sys.executable, "-m", "benchmarks.peers.ort_loop", str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        to, back = child.stdin, child.stdout

        def measure(setting: Setting, seconds: float) -> Sample:
            print(*setting, seconds, file=to, flush=True)
            answer = back.readline()
            if not answer:
                raise PeerFailed(f"{NAME} ended while measuring {setting}")
            per_second, cpu_us, p50_ms, p99_ms = map(float, answer.split())
            return Sample(round(per_second * seconds), per_second, p50_ms, p99_ms, cpu_us)

        try:
            yield measure
        finally:
            to.close()
            child.wait(30)


def main() -> None:
    """Answer one line per line until the input ends."""
    for line in sys.stdin:
        sessions, threads, batch, seconds = line.split()
        setting = Setting(int(sessions), int(threads), int(batch))
        print(*_loop(sys.argv[1], setting, float(seconds)), flush=True)


def _loop(model: str, setting: Setting, seconds: float) -> tuple[float, float, float, float]:
    """Images per second, CPU-µs per image, p50 and p99 of one run in milliseconds."""
    sessions = [_session(model, setting.threads) for _ in range(setting.sessions)]
    images = np.random.default_rng(0).random((setting.batch, *IMAGE), dtype=np.float32)
    for session in sessions:
        session.run(["LOGITS"], {"IMAGE": images})
    runs_ms: list[float] = []
    started, cpu = time.monotonic(), time.process_time()
    deadline = started + seconds
    threads = [
        threading.Thread(target=_repeat, args=(session, images, deadline, runs_ms))
        for session in sessions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = len(runs_ms) * setting.batch
    elapsed, spent = time.monotonic() - started, time.process_time() - cpu
    p50, p99 = np.percentile(runs_ms, (50, 99))
    return count / elapsed, spent / count * 1e6, float(p50), float(p99)


def _repeat(
    session: onnxruntime.InferenceSession,
    images: np.ndarray,
    deadline: float,
    runs_ms: list[float],
) -> None:
    while (before := time.monotonic()) < deadline:
        session.run(["LOGITS"], {"IMAGE": images})
        runs_ms.append((time.monotonic() - before) * 1e3)


def _session(model: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options)


if __name__ == "__main__":
    main()
