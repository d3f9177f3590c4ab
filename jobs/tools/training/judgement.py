"""The report of a trained network beside the version that it comes from."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_pruning
from torch import Tensor, nn

from control.jobs.report import Figure, Report
from control.jobs.specs.training import TrainingSource
from jobs.tools.measure.latency import LatencyPair, measure_in_turns
from jobs.tools.measure.machine import cpu_name
from jobs.tools.networks.files import file_size, network_files
from jobs.tools.result.config import version_folder, write_config
from jobs.tools.result.provenance import digests, spec_fields, versions
from jobs.tools.training.export import export
from jobs.tools.training.recipe import Recipe
from jobs.tools.training.version import OnnxAnswer, SourceVersion, largest_gap, rows_of, tensors_of
from jobs.tools.work import Work, refuse

SAME = 0.05
"""Of the largest output: how far the recipe's network may be from the version it is to be."""
PACKAGES = ("torch", "torch-pruning", "onnx", "onnxruntime", "numpy")
SLOWER = 1.05
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Networks:
    """A network as a file: its size in bytes, gzipped too, its parameters and multiply-adds a row,
    which are NaN where only the file is there.

    `accuracy` from 0 to 1, of the file's answers for the held-out rows.
    """

    path: Path
    accuracy: float
    parameters: int
    nonzero: int
    operations: float

    @property
    def bytes(self) -> int:
        """Of the file, and of those with its weights."""
        return file_size(self.path)

    @property
    def gzipped(self) -> int:
        """Of the same, each compressed."""
        return sum(len(gzip.compress(one.read_bytes(), 6)) for one in network_files(self.path))


class Judge:
    """Measures the source before training and the result after it, by one recipe."""

    def __init__(
        self, work: Work, spec: TrainingSource, recipe: Recipe, version: SourceVersion
    ) -> None:
        self._work = work
        self._spec = spec
        self._recipe = recipe
        self._version = version
        self._scratch = Path(work.task.scratch)

    def source(self, network: nn.Module | None) -> Networks:
        """The version as it is served; the network's own export where that is no ONNX file.

        Refuses a network that does not answer as the version does.
        """
        if network is None:
            assert self._version.onnx is not None
            return self._measured(self._version.onnx, None)
        if self._version.onnx is None:
            path = self._scratch / "source.onnx"
            export(self._recipe, self._version, network, path)
            return self._measured(path, network)
        self._check_same(network, self._version.onnx)
        return self._measured(self._version.onnx, network)

    def result(self, network: nn.Module) -> Networks:
        """The network written where the result belongs, with its config."""
        output = Path(self._work.task.output)
        path = version_folder(output) / "model.onnx"
        export(self._recipe, self._version, network, path)
        write_config(output, self._version.in_result())
        return self._measured(path, network)

    def report(
        self,
        title: str,
        before: Networks,
        after: Networks,
        more: Sequence[Figure] = (),
        warnings: Sequence[str] = (),
    ) -> Report:
        """Accepted unless more accuracy is lost than the spec allows."""
        latency = self._latency(before.path, after.path)
        lost = 100 * (before.accuracy - after.accuracy)
        refused = lost > self._spec.floor + ROUNDING
        task = self._work.task
        return Report(
            title=title,
            verdict="refused" if refused else "accepted",
            reasons=(_reason(before, after, lost, self._spec.floor, latency),),
            warnings=(*warnings, *_slower(latency)),
            figures=(*_figures(before, after, latency), *more),
            spec=spec_fields(task),
            versions=versions(PACKAGES),
            digests=digests(task),
            cpu=cpu_name(),
        )

    def _measured(self, path: Path, network: nn.Module | None) -> Networks:
        answer = OnnxAnswer(path, self._version.name, self._work.task.threads)
        accuracy = self._recipe.accuracy(answer)
        total, nonzero = _counted(path)
        known = float("nan")
        if network is not None:
            known = operations(network, rows_of(self._recipe.example(), 1))
        return Networks(path, accuracy, total, nonzero, known)

    def _latency(self, before: Path, after: Path) -> LatencyPair:
        inputs = rows_of(self._recipe.example(), self._spec.batch)
        first = OnnxAnswer(before, self._version.name, 1)
        second = OnnxAnswer(after, "the result", 1)
        return measure_in_turns(
            lambda: first.arrays(inputs), lambda: second.arrays(inputs), self._spec.batch
        )

    def _check_same(self, network: nn.Module, path: Path) -> None:
        inputs = rows_of(self._recipe.example(), 8)
        with torch.no_grad():
            made = tensors_of(self._recipe.forward(network.eval(), inputs), "the recipe's network")
        answer = OnnxAnswer(path, self._version.name, 1)
        gap = largest_gap(tensors_of(answer(*inputs), self._version.name), made)
        if not gap <= SAME:
            refuse(
                f"{self._recipe.path.name}: the network of network() does not answer as "
                f"{self._version.name} does: they differ by {gap:.2g} of the largest output, and "
                f"{SAME:g} is allowed; it must load this version's weights"
            )


def operations(network: nn.Module, example: tuple[Tensor, ...]) -> float:
    """Multiply-adds of layers with weights, for the example's rows."""
    given = example[0] if len(example) == 1 else example
    with torch.no_grad():
        counted, _ = torch_pruning.utils.count_ops_and_params(network.eval(), given)
    return float(counted)


def _counted(path: Path) -> tuple[int, int]:
    """Parameters of an ONNX file, and those that are not zero. Files are counted before and after,
    as exporters fold some parameters of a module into others."""
    import onnx
    from onnx import numpy_helper

    arrays = [numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer]
    floats = [one for one in arrays if one.dtype.kind == "f"]
    return sum(one.size for one in floats), sum(int((one != 0).sum()) for one in floats)


def _figures(before: Networks, after: Networks, latency: LatencyPair) -> list[Figure]:
    known = before.operations == before.operations
    figures = [
        Figure("held-out accuracy", "%", 100 * before.accuracy, 100 * after.accuracy, "higher"),
        Figure(
            f"latency, {latency.batch} rows, one thread",
            "ms of CPU time", latency.before_ms, latency.after_ms, "lower",
        ),
        Figure("file", "bytes", before.bytes, after.bytes, "lower"),
        Figure("parameters", "", before.parameters, after.parameters, "lower"),
        Figure(
            "multiply-adds per row", "",
            before.operations if known else None, after.operations, "lower",
        ),
    ]  # fmt: skip
    if after.nonzero != after.parameters:
        figures.append(
            Figure("parameters that are not zero", "", before.nonzero, after.nonzero, "lower")
        )
        figures.append(Figure("file, gzipped", "bytes", before.gzipped, after.gzipped, "lower"))
    return figures


def _reason(
    before: Networks, after: Networks, lost: float, floor: float, latency: LatencyPair
) -> str:
    moved = f"{100 * before.accuracy:.2f} % to {100 * after.accuracy:.2f} %"
    if lost > floor + ROUNDING:
        return (
            f"held-out accuracy went from {moved}: {lost:.2f} points lost, and {floor:g} are "
            "allowed; a smaller amount, more epochs or more stages keep more"
        )
    return (
        f"held-out accuracy went from {moved} ({floor:g} points may be lost), and one call of "
        f"{latency.batch} rows takes 1/{latency.speedup:.2f} of the time"
    )


def _slower(latency: LatencyPair) -> list[str]:
    if latency.after_ms <= latency.before_ms * SLOWER:
        return []
    return [
        f"the result is slower: {latency.after_ms:.2f} ms for {latency.batch} rows against "
        f"{latency.before_ms:.2f} ms"
    ]
