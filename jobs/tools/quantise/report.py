"""The report of a quantisation."""

from pathlib import Path
from typing import NamedTuple

import onnx

from control.jobs.messages import Task
from control.jobs.report import Figure, Plot, PlotSeries, Report, ReportTable
from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.inputs.split import DataSplit
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.measure.machine import cpu_name
from jobs.tools.networks.files import file_size, version_name
from jobs.tools.networks.tables import latency_figures, latency_plot, operator_table
from jobs.tools.quantise.quality import RemainingQuality
from jobs.tools.quantise.quantisers import Quantiser
from jobs.tools.quantise.search import QuantisedNetwork
from jobs.tools.result.provenance import digests, spec_fields, versions

PACKAGES = ("onnxruntime", "onnx", "numpy")
MOST_LISTED = 20
SLOWER = 0.97
"""Speedups from here to 1 are within what two measurements of one file differ by."""


class Measurements(NamedTuple):
    """What a quantisation found out; `quantised`: layers of the result that are in int8."""

    source: Path
    network: onnx.ModelProto
    quantiser: Quantiser
    layers: list[str]
    quantised: int
    result: QuantisedNetwork
    split: DataSplit
    quality: RemainingQuality
    largest: float
    latencies: list[LatencyPair]


def quantise_report(task: Task, spec: QuantiseSpec, found: Measurements, seconds: float) -> Report:
    """Put the measurements into words, figures and plots."""
    return Report(
        title=f"Quantise {version_name(spec)} to int8",
        verdict="accepted" if found.quality.enough else "refused",
        reasons=tuple(_reasons(found)),
        warnings=tuple(_warnings(found)),
        figures=tuple(_figures(found)),
        tables=tuple(_tables(found)),
        plots=tuple(_plots(found)),
        spec=spec_fields(task),
        versions=versions(PACKAGES),
        digests=digests(task),
        cpu=cpu_name(),
        seconds=seconds,
    )


def _reasons(found: Measurements) -> list[str]:
    held_out = found.split.held_out.length
    reasons = [found.quality.sentence(held_out)]
    if found.result.excluded:
        reasons.append(
            f"{len(found.result.excluded)} of {len(found.layers)} layers stay in float, the most "
            f"sensitive ones: {', '.join(found.result.excluded)}"
        )
    return reasons


def _warnings(found: Measurements) -> list[str]:
    warnings = [
        f"int8 is slower at batch size {one.batch}: {one.after_ms:.3g} ms against "
        f"{one.before_ms:.3g} ms on this CPU ({cpu_name()}). Serve the source where latency "
        "matters more than size."
        for one in found.latencies
        if one.speedup < SLOWER
    ]
    calibrated = found.split.calibration.length
    if found.quantiser.ranges is not None and calibrated < 100:
        warnings.append(
            f"only {calibrated} rows calibrated; ranges are steadier with 100 to 500 rows"
        )
    if found.quality.before is None:
        warnings.append(
            "accuracy itself was not measured: the data has no labels, or the output no classes"
        )
    if found.quantiser.reduce_range:
        warnings.append(
            "weights are in 7 bits (reduce_range), for CPUs without VNNI; where all servers have "
            "it, 8 bits are more exact"
        )
    return warnings


def _figures(found: Measurements) -> list[Figure]:
    quality = found.quality
    figures = [
        Figure("size", "bytes", file_size(found.source), file_size(found.result.path), "lower"),
        Figure(quality.name, "", quality.before, quality.after, "higher"),
        Figure("largest difference", "", None, found.largest, "lower"),
    ]
    return [*figures, *latency_figures(found.latencies)]


def _tables(found: Measurements) -> list[ReportTable]:
    quantiser, split = found.quantiser, found.split
    rows: list[tuple[str, str | int | bool]] = [
        ("method", "dynamic" if quantiser.ranges is None else "static"),
        ("7-bit weights (reduce_range)", quantiser.reduce_range),
        ("layers", len(found.layers)),
        ("layers in int8", found.quantised),
        ("rows that calibrated", split.calibration.length if quantiser.ranges else 0),
        ("rows held out", split.held_out.length),
    ]
    tables = [ReportTable("How it was quantised", ("what", "value"), tuple(rows))]
    tables.append(operator_table(found.network, onnx.load(found.result.path)))
    if found.result.sensitivities:
        listed = found.result.sensitivities[:MOST_LISTED]
        tables.append(
            ReportTable(
                "Noise in the output when one layer alone is int8",
                ("layer", "noise / power", "left as it is"),
                tuple((one.layer, one.noise, one.layer in found.result.excluded) for one in listed),
            )
        )
    return tables


def _plots(found: Measurements) -> list[Plot]:
    plots = list(latency_plot(found.latencies))
    if found.result.sensitivities:
        points = tuple(
            (float(index), one.noise)
            for index, one in enumerate(found.result.sensitivities[:MOST_LISTED])
        )
        marks = {
            str(index): one.layer
            for index, one in enumerate(found.result.sensitivities[:MOST_LISTED])
        }
        sensitivity = PlotSeries("noise / power", points, marks)
        plots.append(Plot("Sensitivity of layers", "layer", "noise", (sensitivity,), "bar"))
    return plots
