"""Memory and start-up: the examples, then `digits` alone and with 200 models beside it."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.report import Figure, Report
from benchmarks.rounds import Plan
from benchmarks.shots import json_shot

NAME = "memory and start-up"
READY = "examples: second start until ready"
RSS = "examples: gateway RSS"
MANY_READY = "200 small ONNX models: start until ready"
EACH = "200 small ONNX models: RSS each beyond weights"
ALONE = "digits p50 alone"
BESIDE = "digits p50 beside 200 models"
LIMITS = {READY: 5.0, RSS: 350.0, MANY_READY: 30.0, EACH: 4.0}
"""Seconds and megabytes that are not to be exceeded."""
MB = 1e6
CONCURRENCY = 1


def measure(plan: Plan, report: Report) -> None:
    """Start the server `plan.rounds` times on each repository; the medians become figures."""
    if "modelyard" in plan.without:
        return
    repositories = plan.cache / "models"
    _build_check_s(repositories / "examples")  # the first start; what is timed is the second
    found: dict[str, list[float]] = {}
    for _ in range(plan.rounds):
        for name, value in _round(plan, repositories).items():
            found.setdefault(name, []).append(value)
    for name, values in found.items():
        report.figures.append(Figure(name, median(values), _unit(name)))


def _round(plan: Plan, repositories: Path) -> dict[str, float]:
    checking_s = _build_check_s(repositories / "examples")
    with modelyard.started(repositories / "examples", plan.cache) as peer:
        examples = {READY: checking_s + peer.process.ready_s, RSS: peer.process.rss_bytes() / MB}
    with modelyard.started(repositories / "beside", plan.cache) as peer:
        alone_bytes = peer.process.rss_bytes()
        alone = {ALONE: _digits_ms(plan, peer)}
    with modelyard.started(repositories / "many", plan.cache) as peer:
        each = (peer.process.rss_bytes() - alone_bytes) / models.SMALL_MODELS
        beyond = each - models.small_model_bytes(repositories)
        many = {MANY_READY: peer.process.ready_s, EACH: beyond / MB}
        many[BESIDE] = _digits_ms(plan, peer)
    return examples | alone | many


def _build_check_s(examples: Path) -> float:
    """What `./dev serve` does first: see that the examples are built."""
    started = time.monotonic()
    command = [sys.executable, "-m", "examples.build", "--into", str(examples)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return time.monotonic() - started


def _digits_ms(plan: Plan, peer: Peer) -> float:
    shot = json_shot(models.digits_problem(plan.cache / "models"))
    return fire(shot, peer.rest, peer.process, CONCURRENCY, plan.duration_s).p50_ms


def _unit(name: str) -> str:
    if name in (ALONE, BESIDE):
        return "ms"
    return "MB" if name in (RSS, EACH) else "s"
