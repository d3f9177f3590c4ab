"""Asks a running server for every version of the network and prints one table:
`python -m examples.one_network.compare`.

Each line: the largest difference from version 1's answers, the median latency of one client and of
eight, what eight clients get answered in a second, what the server granted the version of memory,
and how long checking, loading and warming it took. Clients are threads of this process over gRPC.
"""

import argparse
import re
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np
import tritonclient.grpc

from examples.arguments import run
from examples.one_network.build import NAME
from examples.one_network.formats import WRITERS
from examples.one_network.network import CHANNELS, INPUT, OUTPUT, SIZE, Array

CLIENTS, ROWS = 8, 4
MIB = 2**20


class Measured(NamedTuple):
    """Of a number of clients: the median latency in milliseconds, and requests a second."""

    median_ms: float
    rate: float


class Line(NamedTuple):
    """One version of the table."""

    version: int
    backend: str
    difference: float
    one: Measured
    eight: Measured
    granted_mib: float
    load_s: float


def main() -> None:
    """Print the table of a running server."""
    parser = argparse.ArgumentParser(prog="python -m examples.one_network.compare")
    parser.add_argument("--grpc", default="127.0.0.1:8001", help="HOST:PORT of the gRPC listener")
    parser.add_argument("--metrics", default="127.0.0.1:8002", help="HOST:PORT of the metrics")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number of clients")
    given = parser.parse_args()
    print(table(lines(given.grpc, given.metrics, given.seconds)))


def lines(grpc: str, metrics: str, seconds: float) -> list[Line]:
    """Measure every version that is ready. Raises InferenceServerException, OSError."""
    told = urlopen(f"http://{metrics}/metrics", timeout=30).read().decode()
    images = np.random.default_rng(0).random((ROWS, CHANNELS[0], SIZE, SIZE), np.float32)
    found: list[Line] = []
    expected: Array | None = None
    with tritonclient.grpc.InferenceServerClient(grpc) as client:
        for version, backend in enumerate(WRITERS, 1):
            if not client.is_model_ready(NAME, str(version)):
                continue
            answer = _ask(client, version, images)
            expected = answer if expected is None else expected
            found.append(
                Line(
                    version,
                    backend,
                    float(np.abs(answer - expected).max()),
                    _measure(grpc, version, images[:1], 1, seconds),
                    _measure(grpc, version, images[:1], CLIENTS, seconds),
                    _value(told, "modelyard_memory_granted_bytes", f"{NAME} version {version}")
                    / MIB,
                    _value(told, "nv_model_load_duration_secs", f'"{NAME}",version="{version}"'),
                )
            )
    return found


def table(found: Iterable[Line]) -> str:
    """The lines as Markdown."""
    rows = [
        "| version | backend | largest difference | p50, 1 client | p50, 8 clients | "
        "requests/s, 8 clients | memory granted | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {one.version} | `{one.backend}` | {one.difference:.1e} | {one.one.median_ms:.1f} ms | "
        f"{one.eight.median_ms:.1f} ms | {one.eight.rate:.0f} | {one.granted_mib:.0f} MiB | "
        f"{one.load_s:.2f} s |"
        for one in found
    ]
    return "\n".join(rows)


def _ask(client: tritonclient.grpc.InferenceServerClient, version: int, images: Array) -> Array:
    tensor = tritonclient.grpc.InferInput(INPUT, list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    found: Array = client.infer(NAME, [tensor], model_version=str(version)).as_numpy(OUTPUT)
    return found


def _measure(grpc: str, version: int, images: Array, clients: int, seconds: float) -> Measured:
    def send(_: int) -> list[float]:
        spent = []
        with tritonclient.grpc.InferenceServerClient(grpc) as client:
            _ask(client, version, images)
            until = time.perf_counter() + seconds
            while (started := time.perf_counter()) < until:
                _ask(client, version, images)
                spent.append(time.perf_counter() - started)
        return spent

    with ThreadPoolExecutor(clients) as threads:
        spent = [one for each in threads.map(send, range(clients)) for one in each]
    return Measured(statistics.median(spent) * 1000, len(spent) / seconds)


def _value(told: str, metric: str, label: str) -> float:
    """The value of the first series of a metric whose labels hold `label`; NaN without one."""
    found = re.search(rf"^{metric}\{{[^}}]*{re.escape(label)}[^}}]*\}} (\S+)$", told, re.MULTILINE)
    return float(found[1]) if found else float("nan")


if __name__ == "__main__":
    run(main)
