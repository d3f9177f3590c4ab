"""What was measured counts as far as it can be believed, and the next measurement corrects it."""

from pathlib import Path

import pytest

from backends.seam import Device
from server.fleet.memory.grants import MemoryAllocator
from server.fleet.memory.ledger import MIB
from server.fleet.memory.measurements import FILE_NAME, MemoryMeasurements
from server.fleet.memory.meter import LoadMeter, MeasuredBytes, plausible
from server.fleet.placement import Placement
from support.runtime import make_version

ONNX = 'backend: "onnxruntime"'
THREADS = 'parameters { key: "intra_op_thread_count" value { string_value: "4" } }'


def measured(kept: MemoryMeasurements, folder: Path, config: str = ONNX) -> tuple[int, int]:
    need = kept.need_of(make_version(folder, config), 1, "cpu")
    return need.least // MIB, need.loading // MIB


def record(kept: MemoryMeasurements, folder: Path, resident: int, config: str = ONNX) -> None:
    kept.record(make_version(folder, config), 1, "cpu", resident * MIB, 2 * resident * MIB)


def test_a_disturbed_measurement_is_corrected_by_the_next_and_stays_so(tmp_path: Path) -> None:
    kept = MemoryMeasurements(tmp_path)
    record(kept, tmp_path, 200)
    assert measured(kept, tmp_path) == (200, 200)
    record(kept, tmp_path, 10)
    assert measured(kept, tmp_path) == (10, 10)
    record(kept, tmp_path, 300)
    record(kept, tmp_path, 11)
    record(kept, tmp_path, 10)
    assert measured(kept, tmp_path) == (11, 11)
    assert measured(MemoryMeasurements(tmp_path), tmp_path) == (11, 11)


def test_another_config_is_measured_anew_and_more_instances_are_not(tmp_path: Path) -> None:
    kept = MemoryMeasurements(None)
    record(kept, tmp_path, 10)
    assert measured(kept, tmp_path, ONNX + "instance_group { count: 2 }") == (10, 10)
    with pytest.raises(KeyError):
        measured(kept, tmp_path, ONNX + THREADS)


@pytest.mark.parametrize("line", ['"a":[1,2]', '"a":[[1,-2]]', '"a":7', '"a":[["x",2]]'])
def test_a_line_that_cannot_be_read_costs_no_other(tmp_path: Path, line: str) -> None:
    kept = MemoryMeasurements(tmp_path)
    record(kept, tmp_path, 10)
    path = tmp_path / FILE_NAME
    path.write_text("{" + line + "," + path.read_text()[1:])
    assert measured(MemoryMeasurements(tmp_path), tmp_path) == (10, 10)


def test_a_reading_is_believed_between_a_quarter_and_twice_the_estimate() -> None:
    estimate = 100 * MIB
    assert plausible(MeasuredBytes(90 * MIB, 120 * MIB), estimate) == (90 * MIB, 120 * MIB)
    assert plausible(MeasuredBytes(900 * MIB, 1200 * MIB), estimate) == (200 * MIB, 200 * MIB)
    assert plausible(MeasuredBytes(2 * MIB, 3 * MIB), estimate) == (25 * MIB, 25 * MIB)


def test_a_load_is_not_measured_while_something_is_closed() -> None:
    meter = LoadMeter()
    with meter.disturbed():
        assert meter.end(meter.begin()) is None
        reading = meter.begin()
    assert meter.end(reading) is None
    reading = meter.begin()
    with meter.disturbed():
        pass
    assert meter.end(reading) is None


@pytest.mark.anyio
async def test_a_measurement_beyond_the_whole_budget_keeps_no_model_from_loading(
    tmp_path: Path,
) -> None:
    kept = MemoryMeasurements(None)
    record(kept, tmp_path, 500)
    memory = MemoryAllocator({"cpu": 100 * MIB}, kept)
    held = await memory.take(make_version(tmp_path, ONNX), [Placement(Device("cpu", 0, 1), ("a",))])
    assert 0 < held.on("cpu") <= 3 * MIB
