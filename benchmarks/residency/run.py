"""Hundreds of models in the memory of a few: `python -m benchmarks.residency.run`.

Writes 500 ONNX models of 40 MB with distinct weights (200 of 20 MB, and a budget for 24, where less
than 40 GB of disk is free), serves them with --load-on-demand under a budget that fits 60, and lets
8 clients ask for them for 5 minutes, which model by Zipf's law. Prints one JSON object; deletes the
models. Exit status 1 if a request failed or the budget was exceeded.
"""

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import numpy as np
import uvloop

from benchmarks.process import Process, free_addresses, is_http_ready, port_of, running
from benchmarks.residency.models import WIDTH, name_of, write_models
from benchmarks.residency.policies import clairvoyant_hits, lru_hits

CLIENTS = 8
SKEW = 1.0
"""Exponent of Zipf's law."""
ENOUGH_DISK_BYTES = 40_000_000_000
RESIDENT_OVER_FILE = 1.1
"""What one loaded model of this kind takes, over its file: measured 42.5 to 44 MB of 40."""
SAMPLE_S, COUNT_S = 0.05, 2.0
READY_S = 1200.0


@dataclass
class Observed:
    """`trace`: models in the order in which they were asked for; `latencies` of the answers in
    milliseconds. `peak`: resident bytes of the server; `granted`: of its models; `resident`: the
    most models loaded at once."""

    trace: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    granted: float = 0.0
    resident: float = 0.0


def main() -> int:
    arguments = _arguments()
    where = Path(arguments.folder or tempfile.gettempdir())
    roomy = shutil.disk_usage(where).free >= ENOUGH_DISK_BYTES
    count = arguments.models or (500 if roomy else 200)
    megabytes = arguments.megabytes or (40 if roomy else 20)
    room = arguments.room or (60 if roomy else 24)
    with tempfile.TemporaryDirectory(prefix="modelyard-residency-", dir=where) as folder:
        root = Path(folder)
        size = write_models(root / "models", count, megabytes)
        budget = int(room * size * RESIDENT_OVER_FILE)
        report = _serve(root, count, budget, arguments.seconds)
    report |= {"models": count, "file_mb": round(size / 1e6, 1), "room": room}
    json.dump(report, sys.stdout, indent=2)
    print()
    return 1 if report["failed"] or report["peak_mb"] > report["budget_mb"] else 0  # type: ignore[operator]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.residency.run", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=300, help="how long clients ask (300)")
    add("--models", type=int, help="how many (500, or 200 on a small disk)")
    add("--megabytes", type=int, help="of weights of each (40, or 20 on a small disk)")
    add("--room", type=int, help="how many the budget fits (60, or 24 on a small disk)")
    add("--folder", help="where the models are written meanwhile (the system's for such)")
    return parser.parse_args()


def _serve(root: Path, count: int, budget: int, seconds: float) -> dict[str, object]:
    rest, grpc, metrics = free_addresses(3)
    command = [sys.executable, "-m", "server.cli", "serve", "--load-on-demand=true"]
    command += [f"--model-repository={root / 'models'}", f"--state-dir={root / 'state'}"]
    command += [f"--http-port={port_of(rest)}", f"--grpc-port={port_of(grpc)}"]
    command += [f"--metrics-port={port_of(metrics)}", "--allow-admin=false"]
    command += [f"--memory-budget=cpu={budget}"]
    (root / "state").mkdir()
    log = root / "server.log"
    began = time.monotonic()

    def ready() -> bool:
        return is_http_ready(rest, "/v2/health/ready")

    with running("modelyard", command, log, ready, deadline_s=READY_S) as process:
        checked_s = time.monotonic() - began
        process.wait_idle()
        baseline = process.rss_bytes()
        observed = uvloop.run(_traffic(rest, metrics, process, count, seconds))
        text = _metrics(metrics)
    words = log.read_text(errors="replace")
    if observed.failures:
        print(words[-4000:], file=sys.stderr)
    cold = [float(found) * 1000 for found in re.findall(r"loaded on demand in ([0-9.]+) s", words)]
    requests, most = len(observed.trace), int(observed.resident)
    return {
        "requests": requests,
        "requests_per_s": round(requests / seconds, 1),
        "failed": sum(observed.failures.values()),
        "failures": dict(observed.failures),
        "checked_s": round(checked_s, 1),
        "budget_mb": round(budget / 1e6),
        "peak_mb": round((observed.peak - baseline) / 1e6),
        "granted_mb": round(observed.granted / 1e6),
        "baseline_mb": round(baseline / 1e6),
        "most_resident": most,
        "loads": len(cold),
        "evictions": _sum(text, "modelyard_evictions"),
        "hit_rate": round(1 - len(cold) / requests, 4),
        "hit_rate_lru": round(lru_hits(observed.trace, most) / requests, 4),
        "hit_rate_clairvoyant": round(clairvoyant_hits(observed.trace, most) / requests, 4),
        "cold_start_ms": _percentiles(cold),
        "request_ms": _percentiles(observed.latencies),
        "worst_loop_stall_ms": _sum(text, "modelyard_event_loop_stall_seconds_max") * 1000,
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = quantiles(values, n=100)
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "max": round(max(values), 1)}


async def _traffic(
    rest: str, metrics: str, process: Process, count: int, seconds: float
) -> Observed:
    observed = Observed()
    weights = 1 / np.arange(1, count + 1) ** SKEW
    draw = np.random.default_rng(11)
    order = draw.permutation(count)
    choices = iter(order[draw.choice(count, 4_000_000, p=weights / weights.sum())].tolist())
    ends = time.monotonic() + seconds
    watching = [
        asyncio.create_task(_weigh(process, observed)),
        asyncio.create_task(_count(metrics, observed)),
    ]
    await asyncio.gather(*(_client(rest, choices, ends, observed) for _ in range(CLIENTS)))
    for task in watching:
        task.cancel()
    return observed


async def _weigh(process: Process, observed: Observed) -> None:
    while True:
        observed.peak = max(observed.peak, process.rss_bytes())
        await asyncio.sleep(SAMPLE_S)


async def _count(metrics: str, observed: Observed) -> None:
    while True:
        text = await asyncio.to_thread(_metrics, metrics)
        observed.resident = max(observed.resident, _sum(text, "modelyard_resident"))
        observed.granted = max(observed.granted, _sum(text, "modelyard_memory_granted_bytes"))
        await asyncio.sleep(COUNT_S)


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as response:
        text: str = response.read().decode()
    return text


def _sum(text: str, metric: str) -> float:
    """Of all series of a metric."""
    pattern = rf"^{metric}(?:{{.*}})? (\S+)$"
    return sum(float(found) for found in re.findall(pattern, text, re.MULTILINE))


async def _client(rest: str, choices: Iterator[int], ends: float, observed: Observed) -> None:
    host, _, port = rest.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    content = _content()
    while time.monotonic() < ends:
        model = next(choices)
        observed.trace.append(model)
        began = time.monotonic()
        writer.write(_HEAD % (name_of(model).encode(), len(content)) + content)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        answer = await reader.readexactly(length)
        if head.startswith(b"HTTP/1.1 200 "):
            observed.latencies.append((time.monotonic() - began) * 1000)
        else:
            observed.failures[answer[:300].decode(errors="replace")] += 1
    writer.close()


_HEAD = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


def _content() -> bytes:
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, WIDTH], "data": [1.0] * WIDTH}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": "Y"}]}).encode()


if __name__ == "__main__":
    sys.exit(main())
