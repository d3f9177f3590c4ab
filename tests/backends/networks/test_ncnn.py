"""What ncnn's backend does beyond the contract of all backends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, LoadFailed
from backends.loading import load
from backends.networks.ncnn import Ncnn
from backends.seam import Instance
from repository.config.tensors import Array
from support.runtime import CPU, batch_of, make_version, member, with_config

RELU = "7767517\n2 2\nInput x 0 1 x\nReLU y 1 1 x y\n"
WHOLE = """
input { name: "x" data_type: TYPE_FP32 dims: [ 1, 2, 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1, 2, 3 ] }
"""


@contextmanager
def running(root: Path, config: str) -> Iterator[Instance]:
    version = make_version(root, f'backend: "ncnn" {config}')
    (version.path / "model.param").write_text(RELU)
    (version.path / "model.bin").write_bytes(b"")
    version = with_config(version, Ncnn().complete(version, 4))
    (instance,) = load(version, CPU, ["m_0"]).instances
    try:
        yield instance
    finally:
        instance.close()


def answer(instance: Instance, x: Array, batched: bool) -> Array:
    (result,) = instance.execute(batch_of(member(x=x), batched=batched)).results
    assert not isinstance(result, Exception), result
    return result["y"]


def test_a_layer_that_works_in_place_answers_and_leaves_the_request_alone(tmp_path: Path) -> None:
    x = np.array([[[-1, 2, -3], [4, -5, 6]]], np.float32)
    before = x.copy()
    with running(tmp_path, WHOLE) as instance:
        found = answer(instance, x, batched=False)
    assert found.tolist() == np.maximum(before, 0).tolist()
    assert x.tolist() == before.tolist()


def test_rows_of_a_batch_are_run_one_after_another(tmp_path: Path) -> None:
    config = "max_batch_size: 4 " + WHOLE.replace("1, 2, 3", "2, 3")
    x = np.arange(-9, 9, dtype=np.float32).reshape(3, 2, 3)
    with running(tmp_path, config) as instance:
        assert answer(instance, x, batched=True).tolist() == np.maximum(x, 0).tolist()


def test_dims_have_to_be_written_for_the_format_records_none(tmp_path: Path) -> None:
    with (
        pytest.raises(LoadFailed, match=r"input 'x' of model\.param records no shape; write its"),
        running(tmp_path, ""),
    ):
        pass


def test_missing_weights_are_named(tmp_path: Path) -> None:
    version = make_version(tmp_path, WHOLE)
    (version.path / "model.param").write_text(RELU)
    with pytest.raises(LoadFailed, match=r"needs its weights in 'model\.bin'"):
        Ncnn().complete(version, 4)


def test_more_dimensions_than_ncnn_has_are_refused(tmp_path: Path) -> None:
    five = WHOLE.replace("1, 2, 3", "2, 1, 1, 2, 3")
    with (
        pytest.raises(LoadFailed, match="has 5 dims, and ncnn takes at most 4"),
        running(tmp_path, five),
    ):
        pass


def test_a_request_that_the_network_refuses_costs_nobody_else_an_answer(tmp_path: Path) -> None:
    broken = RELU.replace("7767517\n2 2", "7767517\n3 3") + "InnerProduct z 1 1 y z 0=2 1=0 2=12\n"
    version = make_version(
        tmp_path,
        'backend: "ncnn" input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }'
        'output { name: "z" data_type: TYPE_FP32 dims: [ 2 ] }',
    )
    (version.path / "model.param").write_text(broken)
    weights = np.concatenate([np.zeros(1), np.ones(12)]).astype(np.float32)
    (version.path / "model.bin").write_bytes(weights.tobytes())
    version = with_config(version, Ncnn().complete(version, 4))
    (instance,) = load(version, CPU, ["m_0"]).instances
    try:
        (good,) = instance.execute(
            batch_of(member(x=np.ones(6, np.float32)), batched=False)
        ).results
        assert good["z"].tolist() == [6, 6]  # type: ignore[index,call-overload]
        with pytest.raises(ExecutionFailed):
            instance.execute(
                batch_of(member(x=np.ones((2, 2, 2, 2, 2), np.float32)), batched=False)
            )
        (again,) = instance.execute(
            batch_of(member(x=np.ones(6, np.float32)), batched=False)
        ).results
        assert again["z"].tolist() == [6, 6]  # type: ignore[index,call-overload]
    finally:
        instance.close()
