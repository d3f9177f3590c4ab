"""The tool: a version in one format in, the same network in another out."""

import importlib
import shutil
import time
from pathlib import Path
from typing import Protocol, cast

from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.report import Report
from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.formats import Conversion, conversion_of
from jobs.tools.convert.report import ConvertedNetwork, convert_report
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.equality import CheckedShape, by_output, compare_with, in_batches, inputs_to_compare
from jobs.tools.inputs.data_file import read_rows
from jobs.tools.measure.latency import LatencyPair, measure_in_turns
from jobs.tools.networks.tensors import RowRunner, Rows
from jobs.tools.result.config import read_config, version_folder, write_config
from jobs.tools.work import Work, refuse


class SourceModule(Protocol):
    """A module that does one conversion."""

    def open_source(self, path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
        """The source, ready to be converted. Raises WorkRefused."""


MOST_DATA_ROWS = 1000
TOLERANCES = {"fp32": 1e-4, "fp16": 0.01}


def run(work: Work) -> Report:
    """Convert the version, and write the result if it answers as the source does."""
    start = time.monotonic()
    spec = cast(ConvertSpec, work.task.spec)
    work.progress(0.02, "reading the version")
    config = read_config(Path(work.task.source))
    conversion = conversion_of(Path(work.task.source), config, spec)
    source = _module(conversion).open_source(conversion.path, config, spec)
    inputs = _inputs(work, source, spec)
    work.progress(0.2, "running the source")
    # Before anything is written: an exporter may leave its module in another mode.
    expected = [in_batches(source.run, rows) for _, rows in inputs]
    work.progress(0.3, f"writing {spec.target}")
    folder = Path(work.task.scratch) / "1"
    folder.mkdir()
    warnings = source.write(folder)
    work.progress(0.7, "comparing with the source")
    result = source.open_result(folder)
    tolerance = TOLERANCES[spec.weights] if spec.tolerance is None else spec.tolerance
    checked = compare_with(expected, lambda rows: in_batches(result, rows), inputs, tolerance)
    work.progress(0.85, "measuring latency")
    latencies = _latencies(source.run, result, inputs[: len(set(spec.rows))])
    accepted = _within(checked, spec.outliers)
    size = sum(one.stat().st_size for one in folder.iterdir())
    if accepted:
        shutil.copytree(folder, version_folder(Path(work.task.output)), dirs_exist_ok=True)
        write_config(Path(work.task.output), source.config)
    found = ConvertedNetwork(
        source, conversion.path, checked, tolerance, latencies, warnings, accepted, size
    )
    return convert_report(work.task, spec, found, time.monotonic() - start)


def _module(conversion: Conversion) -> SourceModule:
    name = f"jobs.tools.convert.{conversion.module}"
    try:
        return cast("SourceModule", importlib.import_module(name))
    except ImportError as error:
        refuse(f"this conversion needs the package {error.name}, which is not installed here")


def _inputs(work: Work, source: SourceNetwork, spec: ConvertSpec) -> list[tuple[str, Rows]]:
    data = None
    if work.task.data:
        data = read_rows(work.task.data, source.inputs, "labels", nan=source.nan)
    made = inputs_to_compare(source.inputs, spec.rows, data, source.run, work.task.seed)
    open_rows = all(one.shape and one.shape[0] is None for one in source.inputs)
    if data is not None and open_rows:
        made.append(("data, all rows", data.first(MOST_DATA_ROWS).inputs))
    return [*made, *source.extra]


def _within(checked: list[CheckedShape], outliers: float) -> bool:
    """Whether of each output few enough rows differ by more than the tolerance."""
    return all(one.beyond <= outliers * one.rows for one in by_output(checked))


def _latencies(
    before: RowRunner, after: RowRunner, inputs: list[tuple[str, Rows]]
) -> list[LatencyPair]:
    """At the smallest and the largest of the spec's numbers of rows."""
    by_rows = {len(next(iter(rows.values()))): rows for _, rows in inputs}
    chosen = sorted({min(by_rows), max(by_rows)})
    return [
        measure_in_turns(
            lambda rows=by_rows[count]: before(rows),  # type: ignore[misc]
            lambda rows=by_rows[count]: after(rows),  # type: ignore[misc]
            count,
        )
        for count in chosen
    ]
