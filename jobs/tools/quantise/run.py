"""The tool: a version as ONNX in, the same network in int8 and what was measured out."""

import shutil
import time
from pathlib import Path
from typing import NamedTuple, cast

import onnx
from onnxruntime import InferenceSession

from control.jobs.report import Report
from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.inputs.data_file import DataRows, read_rows
from jobs.tools.inputs.noise import looks_random
from jobs.tools.inputs.split import LEAST_ROWS, DataSplit, split_rows
from jobs.tools.measure.comparison import Array, Kind, kind_of, tells_classes
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.measure.machine import cpu_flags, saturates
from jobs.tools.networks.files import FILE, load_network, source_file, version_name
from jobs.tools.networks.latencies import measure_sessions
from jobs.tools.networks.sessions import (
    fixed_rows,
    inputs_of,
    open_session,
    outputs_of,
    run_rows,
)
from jobs.tools.quantise.calibration import write_ranges
from jobs.tools.quantise.layers import int8_layers, layers_of, suitable_method, without_layers
from jobs.tools.quantise.quality import RemainingQuality, remaining_quality
from jobs.tools.quantise.quantisers import Quantiser, prepare_network
from jobs.tools.quantise.report import Measurements, quantise_report
from jobs.tools.quantise.search import QuantisedNetwork, SelectionRows, search_network
from jobs.tools.result.config import read_config, result_config, version_folder, write_config
from jobs.tools.work import Work, refuse


class QuantiseSource(NamedTuple):
    """The network to quantise, and the rows that it is quantised and judged with."""

    path: Path
    network: onnx.ModelProto
    session: InferenceSession
    split: DataSplit
    output: str
    kind: Kind


def run(work: Work) -> Report:
    """Quantise the version, and write it if it keeps the floor."""
    start = time.monotonic()
    spec = cast(QuantiseSpec, work.task.spec)
    work.progress(0.01, "reading the version and the data")
    config = read_config(Path(work.task.source))
    source = _read(work, spec, source_file(Path(work.task.source), config, spec))
    quantiser, layers = _quantiser(work, spec, source)
    found = _search(work, source, quantiser, layers)
    quantised = _quantised_layers(spec, quantiser, layers, found.path)
    work.progress(0.75, "judging the result on held-out rows")
    quality, largest = _judge(source, found.path, spec)
    latencies = _latencies(work, source, found.path, spec)
    if quality.enough:
        folder = version_folder(Path(work.task.output))
        shutil.copyfile(found.path, folder / FILE)
        write_config(Path(work.task.output), result_config(config, spec.model, "onnxruntime"))
    measured = Measurements(
        source.path, source.network, quantiser, layers, quantised, found, source.split, quality,
        largest, latencies,
    )  # fmt: skip
    return quantise_report(work.task, spec, measured, time.monotonic() - start)


def _read(work: Work, spec: QuantiseSpec, path: Path) -> QuantiseSource:
    whose = version_name(spec)
    network = load_network(path, whose)
    session = open_session(path, whose)
    rows = read_rows(work.task.data, inputs_of(session), spec.labels)
    least = max(LEAST_ROWS, 2 * fixed_rows(session))
    if rows.length < least:
        refuse(
            f"the data has {rows.length} rows; at least {least} are needed, of which one half "
            "calibrates and the other is held out to judge the result"
        )
    for name, array in rows.inputs.items():
        if distribution := looks_random(array):
            refuse(
                f"the data's array '{name}' is noise of a {distribution} distribution: ranges of "
                "noise say nothing about real inputs; give rows that clients send"
            )
    output = _judged_output(session, spec)
    fixed = fixed_rows(session) or 1
    split = split_rows(rows, spec.samples, spec.evaluate, work.task.seed, fixed)
    first = run_rows(session, split.calibration.first(fixed).inputs)[output]
    return QuantiseSource(path, network, session, split, output, _kind(spec, output, first, rows))


def _quantiser(
    work: Work, spec: QuantiseSpec, source: QuantiseSource
) -> tuple[Quantiser, list[str]]:
    """The way to quantise, and the names of the layers as the prepared network has them."""
    work.progress(0.03, "inferring shapes and folding constants")
    prepared = prepare_network(source.path, Path(work.task.scratch) / "prepared.onnx")
    network = onnx.load(prepared)
    layers = layers_of(network)
    if not layers:
        refuse(f"{version_name(spec)} cannot be quantised: {without_layers(source.network)}")
    if unknown := sorted(set(spec.exclude) - {node.name for node in network.graph.node}):
        refuse(
            f"exclude names no node of the prepared network: {', '.join(unknown)}; "
            f"its layers are {', '.join(layers[:20])}{' …' if len(layers) > 20 else ''}"
        )
    method = spec.method if spec.method != "auto" else suitable_method(network)
    ranges = None
    if method == "static":
        ranges = write_ranges(
            prepared, source.split.calibration, spec, fixed_rows(source.session),
            lambda share: work.progress(0.1 + 0.25 * share, "calibrating"),
        )  # fmt: skip
    reduce = spec.reduce_range == "on"
    if spec.reduce_range == "auto":
        reduce = saturates(cpu_flags())
    return Quantiser(prepared, spec, reduce, ranges), layers


def _search(
    work: Work, source: QuantiseSource, quantiser: Quantiser, layers: list[str]
) -> QuantisedNetwork:
    work.progress(0.36, "quantising")
    selection = source.split.selection
    expected = run_rows(source.session, selection.inputs)[source.output]
    chosen_by = SelectionRows(selection, source.output, expected, source.kind)
    return search_network(
        quantiser, layers, chosen_by,
        lambda share, text: work.progress(0.36 + 0.38 * share, text), fixed_rows(source.session),
    )  # fmt: skip


def _quantised_layers(
    spec: QuantiseSpec, quantiser: Quantiser, layers: list[str], result: Path
) -> int:
    """Layers of the result that are in int8. Refuses a result that has none."""
    count = int8_layers(onnx.load(result))
    if not count:
        method = "dynamic" if quantiser.ranges is None else "static"
        more = "; convolutions need the method 'static'" if method == "dynamic" else ""
        refuse(
            f"{version_name(spec)}: the method '{method}' turns none of its {len(layers)} layers "
            f"into int8 ({', '.join(layers[:20])}){more}, or fewer layers in 'exclude' or "
            "'most_excluded'"
        )
    return count


def _judge(
    source: QuantiseSource, result: Path, spec: QuantiseSpec
) -> tuple[RemainingQuality, float]:
    """Quality of the result on held-out rows, and the largest difference of the judged output."""
    held_out = source.split.held_out
    before = run_rows(source.session, held_out.inputs)[source.output]
    after = run_rows(open_session(result, "the result"), held_out.inputs)[source.output]
    labels = None if held_out.labels is None else held_out.labels[: len(before)]
    quality = remaining_quality(before, after, labels, source.kind, spec.floor)
    return quality, float(abs(before.astype(float) - after.astype(float)).max())


def _latencies(
    work: Work, source: QuantiseSource, result: Path, spec: QuantiseSpec
) -> list[LatencyPair]:
    after = open_session(result, "the result")
    found = []
    for number, batch in enumerate(spec.batch_sizes):
        share = number / len(spec.batch_sizes)
        work.progress(0.8 + 0.18 * share, f"measuring latency at batch size {batch}")
        found += measure_sessions(source.session, after, source.split.held_out.inputs, batch)
    return found


def _judged_output(session: InferenceSession, spec: QuantiseSpec) -> str:
    names = [one.name for one in outputs_of(session)]
    if spec.output and spec.output not in names:
        refuse(f"there is no output '{spec.output}'; the network has {', '.join(names)}")
    return spec.output or names[0]


def _kind(spec: QuantiseSpec, output: str, found: Array, rows: DataRows) -> Kind:
    if spec.compare == "auto":
        return kind_of(found, rows.labels)
    labels = rows.labels if spec.compare == "classes" else None
    if labels is not None and not tells_classes(found, labels):
        refuse(
            f"output '{output}' is one column of floats, which tells the classes 0 and 1 apart, "
            f"but the labels go up to {int(labels.max())}; set compare to 'values', or name "
            "another output"
        )
    return spec.compare
