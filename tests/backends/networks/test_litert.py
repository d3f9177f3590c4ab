"""What LiteRT's backend does beyond the contract of all backends."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from backends.errors import LoadFailed
from backends.networks.litert import LiteRt
from examples.one_network.tflite_file import TfliteOperator, TfliteTensor, save_tflite
from repository.model import ModelVersion
from support.runtime import CPU, batch_of, make_version, member, with_config
from support.tflite import save_tflite_pairs


def completed(version: ModelVersion) -> ModelVersion:
    return with_config(version, LiteRt().complete(version, 4))


def test_a_file_without_a_signature_has_the_names_of_its_tensors(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_tflite_pairs(version.path / "model.tflite", signature="")

    config = completed(version).config

    assert [tensor.name for tensor in (*config.input, *config.output)] == ["a", "b", "X", "Y"]


def test_the_number_of_rows_may_change_from_batch_to_batch(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_tflite_pairs(version.path / "model.tflite")
    (instance,) = LiteRt().load(completed(version), CPU, 1).instances

    for count in (1, 4, 2, 2, 1):
        rows = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
        (result,) = instance.execute(batch_of(member(a=rows, b=-rows))).results
        assert result["X"].tolist() == rows.tolist()  # type: ignore[index,call-overload]


def save_fixed(path: Path) -> None:
    negate = TfliteOperator(
        schema.BuiltinOperator.NEG,
        ("x",),
        ("y",),
        schema.NegOptionsT(),
        schema.BuiltinOptions.NegOptions,
    )
    tensors = [TfliteTensor("x", (1, 3)), TfliteTensor("y", (1, 3))]
    save_tflite(path, tensors, [negate], ["x"], ["y"])


def test_a_file_with_a_fixed_first_dimension_is_served_without_batching(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_fixed(version.path / "model.tflite")

    config = completed(version).config

    assert config.max_batch_size == 0
    assert [list(tensor.dims) for tensor in (*config.input, *config.output)] == [[1, 3], [1, 3]]


def test_batching_is_refused_with_the_reason_where_the_file_cannot(tmp_path: Path) -> None:
    version = make_version(tmp_path, "max_batch_size: 8")
    save_fixed(version.path / "model.tflite")

    with pytest.raises(LoadFailed, match=r"max_batch_size is 8.*no variable first dimension in"):
        completed(version)
