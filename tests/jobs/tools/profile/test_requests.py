"""The requests that a profile sends."""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.profile.requests import DISTINCT, make_requests
from jobs.tools.work import WorkRefused


@pytest.fixture
def config() -> pb.ModelConfig:
    tensor = pb.ModelInput(name="X", data_type=pb.TYPE_INT32, dims=[2])
    return pb.ModelConfig(name="m", max_batch_size=8, input=[tensor])


def data(folder: Path, array: np.ndarray) -> str:
    np.savez(folder / "rows.npz", X=array)
    return str(folder / "rows.npz")


def test_rows_of_the_data_are_sent(config: pb.ModelConfig, tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.int32).reshape(3, 2)
    made = make_requests(config, 3, data(tmp_path, array), 0)
    assert len(made) == DISTINCT
    assert all(one.endswith(array.tobytes()) for one in made)


def test_fewer_rows_than_a_request_has_are_refused(config: pb.ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(WorkRefused, match="has 3 rows, and a request has 4"):
        make_requests(config, 4, data(tmp_path, np.zeros((3, 2), np.int32)), 0)


def test_numbers_of_another_kind_are_refused(config: pb.ModelConfig, tmp_path: Path) -> None:
    with pytest.raises(WorkRefused, match="'X' is float64; the input takes int32"):
        make_requests(config, 1, data(tmp_path, np.full((3, 2), 0.5)), 0)


def test_a_damaged_file_is_refused(config: pb.ModelConfig, tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(WorkRefused, match="cannot be read"):
        make_requests(config, 1, str(tmp_path / "rows.npz"), 0)
