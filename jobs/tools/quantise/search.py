"""Search for the smallest set of layers that must stay as they are."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.inputs.data_file import DataRows
from jobs.tools.measure.comparison import Array, Kind
from jobs.tools.networks.sessions import open_session, run_rows
from jobs.tools.quantise.quality import RemainingQuality, remaining_quality
from jobs.tools.quantise.quantisers import Quantiser
from jobs.tools.quantise.sensitivity import MOST_ROWS, LayerSensitivity, measure_layers

Progress = Callable[[float, str], None]


class SelectionRows(NamedTuple):
    """The rows by which results are chosen, and the judged output of the source for them."""

    rows: DataRows
    output: str
    expected: Array
    kind: Kind


class QuantisedNetwork(NamedTuple):
    """The result: its file, the layers left as they are, and sensitivities if they were needed."""

    path: Path
    excluded: tuple[str, ...]
    sensitivities: tuple[LayerSensitivity, ...]
    selection: RemainingQuality


def search_network(
    quantiser: Quantiser,
    layers: list[str],
    selection: SelectionRows,
    progress: Progress,
    batch: int = 1,
) -> QuantisedNetwork:
    """Quantise everything; while the floor is missed, leave out one more of the layers that are
    most sensitive, up to the spec's bound. The last try is returned where none keeps the floor.

    batch: rows of each call where the network fixes them.
    """
    spec = quantiser.spec
    path = quantiser.write(quantiser.prepared.with_suffix(".int8.onnx"))
    quality = _quality(path, selection, spec)
    if quality.enough or not spec.most_excluded:
        return QuantisedNetwork(path, (), (), quality)
    candidates = [layer for layer in layers if layer not in spec.exclude]
    few = _first_rows(selection, max(MOST_ROWS, batch))
    sensitivities = measure_layers(
        quantiser, candidates, few.rows, few.expected, few.output,
        lambda share, text: progress(0.8 * share, text),
    )  # fmt: skip
    excluded: tuple[str, ...] = ()
    for count, one in enumerate(sensitivities[: spec.most_excluded], 1):
        excluded = (*excluded, one.layer)
        progress(0.8 + 0.2 * count / spec.most_excluded, f"leaving {one.layer} as it is")
        path = quantiser.write(path, excluded)
        quality = _quality(path, selection, spec)
        if quality.enough:
            break
    return QuantisedNetwork(path, excluded, tuple(sensitivities), quality)


def _quality(path: Path, selection: SelectionRows, spec: QuantiseSpec) -> RemainingQuality:
    found = run_rows(open_session(path, "the result"), selection.rows.inputs)[selection.output]
    labels = selection.rows.labels
    labels = None if labels is None else labels[: len(found)]
    return remaining_quality(selection.expected, found, labels, selection.kind, spec.floor)


def _first_rows(selection: SelectionRows, count: int) -> SelectionRows:
    few = selection.rows.first(count)
    return selection._replace(rows=few, expected=selection.expected[:count])
