"""Ranges of a network's activations over calibration rows, in bounded memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from onnxruntime.quantization.calibrate import create_calibrator, save_tensors_data

from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.inputs.data_file import DataRows
from jobs.tools.networks.files import first_line
from jobs.tools.work import refuse

CHUNK_ROWS = 8
"""Rows whose activations are in memory at a time."""

ENTROPY_BINS = 2048

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


class ChunkReader(CalibrationDataReader):  # type: ignore[misc]
    """Hands rows to a calibrator, as many at a time as the network takes."""

    def __init__(self, rows: DataRows, start: int, stop: int, batch: int) -> None:
        self._batches = self._cut(rows, start, stop, batch)

    def get_next(self) -> dict[str, Any] | None:
        """The next batch; None at the end."""
        return next(self._batches, None)

    @staticmethod
    def _cut(rows: DataRows, start: int, stop: int, batch: int) -> Iterator[dict[str, Any]]:
        for at in range(start, stop - batch + 1, batch):
            yield {name: array[at : at + batch] for name, array in rows.inputs.items()}


def write_ranges(
    network: Path, rows: DataRows, spec: QuantiseSpec, fixed: int, progress: Callable[[float], None]
) -> Path:
    """Calibrate the prepared network and write its ranges beside it; the path of that file.

    fixed: the rows of each call where the network fixes them, else 0; fewer are left out then.
    """
    batch = fixed or 1
    chunk = max(CHUNK_ROWS // batch, 1) * batch
    path = network.with_suffix(".ranges.json")
    try:
        calibrator = create_calibrator(
            network,
            None,
            augmented_model_path=str(network.with_suffix(".augmented.onnx")),
            calibrate_method=METHODS[spec.calibration],
            extra_options=_options(spec),
        )
        stop = rows.length - rows.length % batch
        for start in range(0, stop, chunk):
            end = min(start + chunk, stop)
            calibrator.collect_data(ChunkReader(rows, start, end, batch))
            progress(end / stop)
        save_tensors_data(calibrator.compute_data(), path)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises what its graph check finds
        refuse(f"the network cannot be calibrated: {first_line(error)}")
    return path


def _options(spec: QuantiseSpec) -> dict[str, float]:
    if spec.calibration == "percentile":
        return {"percentile": spec.percentile}
    if spec.calibration == "entropy":
        # With onnxruntime's own 128 bins for 128 levels nothing can be cut off: it is min-max.
        return {"num_bins": ENTROPY_BINS, "num_quantized_bins": 128}
    return {}
