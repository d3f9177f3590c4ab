"""The report of an optimisation."""

from pathlib import Path
from typing import NamedTuple

import onnx

from control.jobs.messages import Task
from control.jobs.report import Figure, Report, ReportTable
from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.equality import CheckedShape, equality_table, largest_relative, uneven_outputs
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.measure.machine import cpu_name
from jobs.tools.networks.drawing import drawing
from jobs.tools.networks.files import file_size, version_name
from jobs.tools.networks.tables import latency_figures, latency_plot, operator_table
from jobs.tools.optimise.half_weights import HalvedWeights
from jobs.tools.result.provenance import digests, spec_fields, versions

PACKAGES = ("onnxslim", "onnx", "onnxruntime", "numpy")


class OptimisedNetwork(NamedTuple):
    """What an optimisation found out."""

    source: Path
    network: onnx.ModelProto
    result: HalvedWeights
    checked: list[CheckedShape]
    tolerance: float
    latencies: list[LatencyPair]
    accepted: bool


def optimise_report(
    task: Task, spec: OptimiseSpec, found: OptimisedNetwork, seconds: float
) -> Report:
    """Put the measurements into words, figures, tables and drawings."""
    before, after = found.network, found.result.network
    return Report(
        title=f"Optimise {version_name(spec)}",
        verdict="accepted" if found.accepted else "refused",
        reasons=(_reason(found),),
        warnings=tuple(_warnings(found)),
        figures=tuple(_figures(found)),
        tables=(equality_table(found.checked), operator_table(before, after), *_weights(found)),
        plots=latency_plot(found.latencies),
        graphs=(drawing(before, "before"), drawing(after, "after")),
        spec=spec_fields(task),
        versions=versions(PACKAGES),
        digests=digests(task),
        cpu=cpu_name(),
        seconds=seconds,
    )


def _reason(found: OptimisedNetwork) -> str:
    largest = largest_relative(found.checked)
    shapes = "; ".join(one.shapes for one in found.checked)
    return (
        f"the largest difference from the source is {largest:.3g} of the output's largest value "
        f"(at {shapes}); at most {found.tolerance:.3g} is accepted"
    )


def _warnings(found: OptimisedNetwork) -> list[str]:
    warnings = uneven_outputs(found.checked)
    fewer = len(found.network.graph.node) - len(found.result.network.graph.node)
    if fewer <= 0 and not found.result.halved:
        warnings.append("no pass found anything to simplify; the source is as good")
    if found.result.too_large:
        warnings.append(
            f"{found.result.too_large} weights stay in float32: they have values that 16 bits "
            "cannot hold"
        )
    if any(one.origin == "made up" for one in found.checked):
        warnings.append("compared on rows that were made up; a data file of real rows says more")
    return warnings


def _figures(found: OptimisedNetwork) -> list[Figure]:
    after = found.result.network
    return [
        Figure("nodes", "", len(found.network.graph.node), len(after.graph.node), "lower"),
        Figure("size", "bytes", file_size(found.source), after.ByteSize(), "lower"),
        Figure("largest relative difference", "", None, largest_relative(found.checked), "lower"),
        *latency_figures(found.latencies),
    ]


def _weights(found: OptimisedNetwork) -> tuple[ReportTable, ...]:
    if not found.result.halved:
        return ()
    rows = (("in 16 bits", found.result.halved), ("left: too large", found.result.too_large))
    return (ReportTable("Weights", ("what", "number"), rows),)
