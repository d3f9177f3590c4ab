"""A profile's search beside a grid: `python -m benchmarks.jobs.profile_search`.

For two example models a job measures every combination of settings, and another one searches among
them. Then the best of both, and the config that the search's report says to set, are loaded into
one server by turns and measured again: one measurement may be lucky, and the best of many is.
Throughput of eight clients with one request each, and the processor time of the server for an
answer, which other work on the machine changes little.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from benchmarks.jobs.tool_runs import run_tool
from control.jobs.report import Report
from control.jobs.specs.profile import ProfileSpec
from examples.photo_labels import build as photo_labels
from jobs.tools.profile.changed_config import changed, measured
from jobs.tools.profile.clients import fire
from jobs.tools.profile.requests import make_requests
from jobs.tools.profile.served import ProfiledServer
from jobs.tools.profile.space import TrialSettings
from jobs.tools.result.config import read_config

PHOTOS = """\
name: "photo_network"
backend: "onnxruntime"
max_batch_size: 8
input { name: "PIXELS" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }
output { name: "LOGITS" data_type: TYPE_FP32 dims: [ 4 ] }
dynamic_batching {}
"""
"""The example's config as a server completes it."""
EXAMPLES = ("digits", "photo_network")
CLIENTS = 8
DIGITS = Path(__file__).parents[2] / "server/cli/demo_files/models/digits"
"""As `modelyard demo` serves it."""


class Sample(NamedTuple):
    """Answers a second, and milliseconds of the server's processor time for one."""

    per_second: float
    cpu_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs.profile_search", description=__doc__
    )
    parser.add_argument("--only", choices=EXAMPLES, nargs="+", default=list(EXAMPLES))
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=7, help="of the comparison")
    given = parser.parse_args()
    print(
        "| model | choices | measured | best of the grid | found | found / best: answers, CPU | "
        "applied / reported: answers, CPU |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="profile-") as folder:
            print(row(name, Path(folder), given.seconds, given.rounds), flush=True)
    print(f"\nload of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def row(name: str, folder: Path, seconds: float, rounds: int) -> str:
    """The line of one model."""
    source = built(name, folder / "source")
    spec = ProfileSpec(model=name, version=1, concurrency=CLIENTS, seconds=seconds)
    grid = run_tool(folder / "grid", msgspec.structs.replace(spec, method="grid"), source)
    search = run_tool(folder / "search", spec, source)
    count = len(grid.tables[0].rows)
    tried = len(search.tables[0].rows)
    best, found = best_of(grid), best_of(search)
    config = measured(read_config(source))
    applied = pb.ModelConfig()
    applied.CopyFrom(changed(config, found))
    if search.config:
        said = text_format.Parse(search.config, pb.ModelConfig())
        for field in ("instance_group", "dynamic_batching"):
            applied.ClearField(field)
        applied.MergeFrom(said)
    configs = {"best": changed(config, best), "found": changed(config, found), "applied": applied}
    samples = by_turns(folder / "served", source, config, configs, seconds, rounds)
    reported = reported_of(search, found)
    return (
        f"| {name} | {count} | {tried} + 4 ({(tried + 4) / count:.1%}) | {words(best)} | "
        f"{words(found)} | {ratio(samples['found'], samples['best'])} | "
        f"{against(samples['applied'], reported)} |"
    )


def built(name: str, folder: Path) -> Path:
    """The example's version with its config."""
    folder.mkdir(parents=True)
    if name == "digits":
        shutil.copy(DIGITS / "2" / "model.onnx", folder)
        shutil.copy(DIGITS / "config.pbtxt", folder)
    else:
        photo_labels.build_part(name, 1, folder)
        (folder / "config.pbtxt").write_text(PHOTOS)
    return folder


def best_of(report: Report) -> TrialSettings:
    """With most answers a second."""
    rows = report.tables[0].rows
    chosen = max(rows, key=lambda one: float(one[4] or 0))
    return TrialSettings(*(int(one or 0) for one in chosen[:4]))


def reported_of(report: Report, settings: TrialSettings) -> Sample:
    """What the report says of these settings."""
    rows = (one for one in report.tables[0].rows if tuple(one[:4]) == tuple(settings))
    row = next(rows)
    return Sample(float(row[4] or 0), float(row[8] or 0))


def by_turns(
    folder: Path, source: Path, config: pb.ModelConfig, configs: dict[str, pb.ModelConfig],
    seconds: float, rounds: int,
) -> dict[str, list[Sample]]:  # fmt: skip
    """Measure each config once a round, in turn, on one server."""
    folder.mkdir()
    requests = make_requests(config, 1, "", 1)
    found: dict[str, list[Sample]] = {name: [] for name in configs}
    with ProfiledServer(folder, source, config) as server:
        for _ in range(rounds):
            for name, one in configs.items():
                server.load(one)
                spent = server.cpu_seconds()
                load = fire(server.socket, requests, CLIENTS, seconds)
                spent = server.cpu_seconds() - spent
                found[name].append(
                    Sample(len(load.latencies_ms) / load.seconds, 1e3 * spent / load.answers)
                )
    return found


def ratio(ours: list[Sample], theirs: list[Sample]) -> str:
    """Medians of the ratios of neighbours."""
    pairs = list(zip(ours, theirs, strict=True))
    answers = statistics.median(one.per_second / other.per_second for one, other in pairs)
    cpu = statistics.median(one.cpu_ms / other.cpu_ms for one, other in pairs)
    return f"{answers:.2f}, {cpu:.2f}"


def against(samples: list[Sample], reported: Sample) -> str:
    """Medians against what the report says."""
    answers = statistics.median(one.per_second for one in samples) / reported.per_second
    cpu = statistics.median(one.cpu_ms for one in samples) / reported.cpu_ms
    return f"{answers:.2f}, {cpu:.2f}"


def words(settings: TrialSettings) -> str:
    """In a cell."""
    return (
        f"{settings.instances} × batch {settings.batch}, {settings.delay_us} µs, "
        f"{settings.threads} thr"
    )


if __name__ == "__main__":
    main()
