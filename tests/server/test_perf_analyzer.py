"""NVIDIA's perf_analyzer drives a server in each of its modes, and its figures add up."""

import csv
import shutil
import subprocess

import pytest

from support.server import running, write_identity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("perf_analyzer") is None,
        reason="perf_analyzer is not on PATH; pip install perf-analyzer brings it",
    ),
]

MODES = {
    "closed loop": ["--concurrency-range", "2"],
    "request rate": ["--request-rate-range", "100"],
    "shared memory": ["--concurrency-range", "2", "--shared-memory", "system"],
    "gRPC": ["-i", "grpc", "--concurrency-range", "2"],
    "gRPC streaming": ["-i", "grpc", "--streaming", "--concurrency-range", "2"],
    "gRPC shared memory": ["-i", "grpc", "--concurrency-range", "2", "--shared-memory", "system"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "identity", 1, delay_ms=2)
    with running(repository, allow_client_shm=True) as started:
        yield started


def measure(server, folder, *flags):
    """The one row of the report, in µs: column → value; with --collect-metrics always."""
    report = folder / "report.csv"
    command = ["perf_analyzer", "-m", "identity", "--shape", "INPUT0:16", "-f", str(report)]
    command += ["-u", server.grpc if "grpc" in flags else server.http, *flags]
    command += ["--collect-metrics", "--metrics-url", f"{server.metrics}/metrics"]
    command += ["--measurement-mode", "count_windows", "--measurement-request-count", "200"]
    command += ["--stability-percentage", "200", "--verbose-csv", "--metrics-interval", "100"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = csv.DictReader(report.read_text().splitlines())
    return {
        name: float(value) for name, value in row.items() if name and value and ":" not in value
    }


@pytest.mark.parametrize("mode", MODES)
def test_perf_analyzer_runs_and_its_split_agrees_with_the_clients_latency(server, mode, tmp_path):
    row = measure(server, tmp_path, *MODES[mode])
    inside = row["Server Queue"] + sum(row[f"Server Compute {part}"] for part in PARTS)
    assert row["Server Compute Infer"] >= 2000  # the model takes 2 ms
    assert inside <= row["Avg latency"] <= inside + 100_000


PARTS = ("Input", "Infer", "Output")
