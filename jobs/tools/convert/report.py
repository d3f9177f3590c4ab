"""The report of a conversion."""

from pathlib import Path
from typing import NamedTuple

from control.jobs.messages import Task
from control.jobs.report import Figure, Report
from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.equality import (
    CheckedShape,
    by_output,
    equality_table,
    largest_relative,
    uneven_outputs,
)
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.measure.machine import cpu_name
from jobs.tools.networks.files import network_files, version_name
from jobs.tools.networks.tables import latency_figures, latency_plot
from jobs.tools.result.provenance import digests, spec_fields, versions

TARGETS = {"onnx": "ONNX", "openvino": "OpenVINO's IR", "ncnn": "ncnn", "litert": "LiteRT"}


class ConvertedNetwork(NamedTuple):
    """What a conversion found out; `size`: bytes of the result."""

    source: SourceNetwork
    path: Path
    checked: list[CheckedShape]
    tolerance: float
    latencies: list[LatencyPair]
    warnings: list[str]
    accepted: bool
    size: int


def convert_report(
    task: Task, spec: ConvertSpec, found: ConvertedNetwork, seconds: float
) -> Report:
    """Put the comparison into words, figures and a table."""
    return Report(
        title=f"Convert {version_name(spec)} to {TARGETS[spec.target]}",
        verdict="accepted" if found.accepted else "refused",
        reasons=(_reason(found, spec),),
        warnings=tuple(_warnings(found)),
        figures=tuple(_figures(found)),
        tables=(equality_table(found.checked),),
        plots=latency_plot(found.latencies),
        spec=spec_fields(task),
        versions=versions((*found.source.packages, "numpy")),
        digests=digests(task),
        cpu=cpu_name(),
        seconds=seconds,
    )


def _reason(found: ConvertedNetwork, spec: ConvertSpec) -> str:
    worst = max(by_output(found.checked), key=lambda one: one.beyond / max(one.rows, 1))
    return (
        f"{worst.beyond} of {worst.rows} rows of output '{worst.output}' compared with "
        f"{found.source.what} differ by more than {found.tolerance:.3g} of the output's largest "
        f"value; at most {int(spec.outliers * worst.rows)} may, and no other output is further "
        f"off. The largest difference is {largest_relative(found.checked):.3g}"
    )


def _warnings(found: ConvertedNetwork) -> list[str]:
    warnings = [*found.warnings, *uneven_outputs(found.checked)]
    warnings += [
        f"the label of {one.flips} of {one.rows} compared rows of output '{one.output}' differs "
        "from the source's"
        for one in by_output(found.checked)
        if one.flips
    ]
    if all(not one.origin.startswith("data") for one in found.checked):
        warnings.append("compared on rows that were made up; a data file of real rows says more")
    for one in found.latencies:
        if one.speedup < 0.97:
            warnings.append(
                f"the result is slower at {one.batch} rows: {one.after_ms:.3g} ms against "
                f"{one.before_ms:.3g} ms"
            )
    return warnings


def _figures(found: ConvertedNetwork) -> list[Figure]:
    before = sum(one.stat().st_size for one in _source_files(found.path))
    return [
        Figure("size", "bytes", before, found.size, "lower"),
        Figure("largest relative difference", "", None, largest_relative(found.checked), "lower"),
        Figure(
            "label flips", "rows", None, sum(one.flips for one in by_output(found.checked)), "lower"
        ),
        *latency_figures(found.latencies),
    ]


def _source_files(path: Path) -> list[Path]:
    if path.name == "config.json":
        return [one for one in path.parent.rglob("*") if one.is_file()]
    return network_files(path) if path.suffix == ".onnx" else [path]
