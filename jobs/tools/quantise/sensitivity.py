"""Which layers lose most by int8, measured one by one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.tools.inputs.data_file import DataRows
from jobs.tools.measure.comparison import Array, noise_ratio
from jobs.tools.networks.sessions import open_session, run_rows
from jobs.tools.quantise.quantisers import Quantiser

MOST_ROWS = 16
MOST_LAYERS = 96


class LayerSensitivity(NamedTuple):
    """Noise in the judged output, as a share of its power, when only this layer is int8."""

    layer: str
    noise: float


def measure_layers(
    quantiser: Quantiser,
    layers: Sequence[str],
    rows: DataRows,
    expected: Array,
    output: str,
    progress: Callable[[float, str], None],
) -> list[LayerSensitivity]:
    """Quantise each layer alone and run up to 16 rows; the most sensitive layer first.

    expected: the source's output for these rows. At most MOST_LAYERS layers are measured, the
    first and the last ones, where networks are most sensitive.
    """
    if len(layers) > MOST_LAYERS:
        half = MOST_LAYERS // 2
        layers = [*layers[:half], *layers[-half:]]
    found = []
    for number, layer in enumerate(layers):
        progress(number / len(layers), f"measuring the sensitivity of {layer}")
        found.append(LayerSensitivity(layer, _noise_of(quantiser, layer, rows, expected, output)))
    return sorted(found, key=lambda one: -one.noise)


def _noise_of(
    quantiser: Quantiser, layer: str, rows: DataRows, expected: Array, output: str
) -> float:
    path: Path = quantiser.write(quantiser.prepared.with_suffix(".one.onnx"), only=[layer])
    found = run_rows(open_session(path, f"layer {layer}"), rows.inputs)[output]
    return noise_ratio(expected[: len(found)], found)
