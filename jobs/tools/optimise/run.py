"""The tool: a version as ONNX in, the same function by a simpler graph out."""

import time
from pathlib import Path
from typing import NamedTuple, cast

import onnx
from onnxruntime import InferenceSession

from control.jobs.report import Report
from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.equality import (
    CheckedShape,
    compare_with,
    inputs_to_compare,
    largest_relative,
)
from jobs.tools.inputs.data_file import DataRows, read_rows
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.networks.files import (
    FILE,
    load_network,
    save_network,
    source_file,
    version_name,
)
from jobs.tools.networks.latencies import measure_sessions
from jobs.tools.networks.sessions import inputs_of, open_session, run_rows
from jobs.tools.networks.tensors import Rows
from jobs.tools.optimise.half_weights import LEAST_OPSET, HalvedWeights, halve_weights, opset_of
from jobs.tools.optimise.passes import simplify
from jobs.tools.optimise.report import OptimisedNetwork, optimise_report
from jobs.tools.result.config import read_config, result_config, version_folder, write_config
from jobs.tools.work import Work, refuse

TOLERANCES = {"keep": 1e-5, "fp16": 0.01, "bf16": 0.05}


class OptimiseSource(NamedTuple):
    """The network to simplify, a session of it, and the rows to compare on if there are any."""

    path: Path
    network: onnx.ModelProto
    session: InferenceSession
    data: DataRows | None


def run(work: Work) -> Report:
    """Simplify the version, and write it if it answers as before."""
    start = time.monotonic()
    spec = cast(OptimiseSpec, work.task.spec)
    work.progress(0.02, "reading the version")
    config = read_config(Path(work.task.source))
    source = _read(work, spec, source_file(Path(work.task.source), config, spec))
    work.progress(0.1, "simplifying the graph")
    halved = _optimised(source.network, spec)
    path = Path(work.task.scratch) / FILE
    save_network(halved.network, path)
    tolerance = TOLERANCES[spec.weights] if spec.tolerance is None else spec.tolerance
    work.progress(0.4, "comparing with the source")
    after = open_session(path, "the result")
    checked, inputs = _checked(source, after, spec, tolerance, work.task.seed)
    latencies = _latencies(work, source.session, after, inputs, spec)
    accepted = largest_relative(checked) <= tolerance
    if accepted:
        path.rename(version_folder(Path(work.task.output)) / FILE)
        write_config(Path(work.task.output), result_config(config, spec.model, "onnxruntime"))
    found = OptimisedNetwork(
        source.path, source.network, halved, checked, tolerance, latencies, accepted
    )
    return optimise_report(work.task, spec, found, time.monotonic() - start)


def _read(work: Work, spec: OptimiseSpec, path: Path) -> OptimiseSource:
    whose = version_name(spec)
    network = load_network(path, whose)
    session = open_session(path, whose)
    data = None
    if work.task.data:
        data = read_rows(work.task.data, inputs_of(session), "labels", nan=True)
    return OptimiseSource(path, network, session, data)


def _optimised(network: onnx.ModelProto, spec: OptimiseSpec) -> HalvedWeights:
    simple = simplify(network, version_name(spec))
    if spec.weights == "keep":
        return HalvedWeights(simple, 0, 0)
    if opset_of(simple) < LEAST_OPSET:
        refuse(
            f"{version_name(spec)} uses opset {opset_of(simple)}; weights in {spec.weights} need "
            f"{LEAST_OPSET} or higher: export it again with a higher opset_version"
        )
    return halve_weights(simple, spec.weights)


def _checked(
    source: OptimiseSource,
    after: InferenceSession,
    spec: OptimiseSpec,
    tolerance: float,
    seed: int,
) -> tuple[list[CheckedShape], Rows]:
    """The comparison, and the last rows compared, which latency is measured on."""

    def before(rows: Rows) -> Rows:
        return run_rows(source.session, rows, len(next(iter(rows.values()))))

    def result(rows: Rows) -> Rows:
        return run_rows(after, rows, len(next(iter(rows.values()))))

    inputs = inputs_to_compare(inputs_of(source.session), spec.rows, source.data, before, seed)
    expected = [before(rows) for _, rows in inputs]
    return compare_with(expected, result, inputs, tolerance), inputs[-1][1]


def _latencies(
    work: Work, before: InferenceSession, after: InferenceSession, rows: Rows, spec: OptimiseSpec
) -> list[LatencyPair]:
    found = []
    for number, batch in enumerate(spec.batch_sizes):
        share = number / len(spec.batch_sizes)
        work.progress(0.6 + 0.38 * share, f"measuring latency at batch size {batch}")
        found += measure_sessions(before, after, rows, batch)
    return found
