"""ONNX Runtime: real graphs, loaded and executed on the CPU."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from backends.errors import ExecutionFailed, LoadFailed
from backends.onnx.backend import OnnxRuntime
from backends.onnx.complete import TYPES
from backends.seam import Device, Instance, Result, Tensors
from repository.config.tensors import BY_CONFIG
from repository.model import ModelVersion
from support.runtime import (
    CPU,
    batch_of,
    make_version,
    member,
    save_graph,
    save_unary,
    with_config,
    words,
)


def loaded(version: ModelVersion, count: int = 1) -> list[Instance]:
    completed = with_config(version, OnnxRuntime().complete(version, 4))
    return list(OnnxRuntime().load(completed, CPU, count).instances)


def tensors(result: Result) -> Tensors:
    assert isinstance(result, Mapping), result
    return result


KINDS = [kind for kind in TYPES if kind != TensorProto.STRING]


@pytest.mark.parametrize("kind", KINDS, ids=[TensorProto.DataType.Name(kind) for kind in KINDS])
def test_every_data_type_arrives_bit_by_bit(tmp_path: Path, kind: int) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", kind=kind)
    (instance,) = loaded(version)
    dtype = BY_CONFIG[TYPES[kind]].dtype
    bits = np.arange(2 * 4 * dtype.itemsize, dtype=np.uint8) * 37
    sent = bits % 2 if kind == TensorProto.BOOL else bits
    parts = np.split(sent.view(dtype).reshape(2, 4), 2)

    outcome = instance.execute(batch_of(*[member(X=part) for part in parts]))

    for part, result in zip(parts, outcome.results, strict=True):
        assert tensors(result)["Y"].dtype == dtype
        assert tensors(result)["Y"].tobytes() == part.tobytes()


def test_strings_travel_as_bytes(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", kind=TensorProto.STRING, shape=("N", 2))
    (instance,) = loaded(version)

    (result,) = instance.execute(batch_of(member(X=words("grün".encode(), b"")))).results

    assert tensors(result)["Y"].tolist() == [["grün".encode(), b""]]


def test_text_that_is_not_utf8_fails_its_own_request_only(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", kind=TensorProto.STRING, shape=("N", 1))
    (instance,) = loaded(version)

    good, bad = instance.execute(
        batch_of(member(X=words(b"fine")), member(X=words(b"\xff")))
    ).results

    assert tensors(good)["Y"].tolist() == [[b"fine"]]
    assert isinstance(bad, ExecutionFailed)
    assert "element 0 of input 'X' is not UTF-8" in str(bad)


def test_scalars_travel_as_one_element(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", op="Neg", shape=())
    completed_config = OnnxRuntime().complete(version, 4)
    (instance,) = loaded(version)

    (result,) = instance.execute(
        batch_of(member(X=np.array([3], np.float32)), batched=False)
    ).results

    assert list(completed_config.input[0].dims) == [1]
    assert tensors(result)["Y"].tolist() == [-3.0]


def test_a_scalar_output_is_answered_in_the_shape_its_config_gives(tmp_path: Path) -> None:
    tensor = "data_type: TYPE_FP32 dims: [ 1, 1 ]"
    config = f'input {{ name: "X" {tensor} }} output {{ name: "Y" {tensor} }}'
    version = make_version(tmp_path, config)
    save_unary(version.path / "model.onnx", op="Neg", shape=())
    (instance,) = loaded(version)

    asked = batch_of(member(X=np.array([[3]], np.float32)), batched=False)
    (result,) = instance.execute(asked).results

    assert tensors(result)["Y"].tolist() == [[-3.0]]


def test_absent_optional_input_takes_the_other_branch(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_optional_graph(version.path / "model.onnx")
    (instance,) = loaded(version)
    x = np.ones((1, 2), np.float32)

    (without,) = instance.execute(batch_of(member(X=x))).results
    (given,) = instance.execute(batch_of(member(X=x, O=x * 3))).results

    assert tensors(without)["Y"].tolist() == [[1.0, 1.0]]
    assert tensors(given)["Y"].tolist() == [[3.0, 3.0]]


def save_optional_graph(path: Path) -> None:
    """Y is O where it is given, else X."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ("N", 2))
    take = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["O"], ["t"])],
        "take",
        [],
        [helper.make_value_info("t", tensor)],
    )
    pass_on = helper.make_graph(
        [helper.make_node("Identity", ["X"], ["e"])],
        "pass_on",
        [],
        [helper.make_value_info("e", tensor)],
    )
    nodes = [
        helper.make_node("OptionalHasElement", ["O"], ["given"]),
        helper.make_node("If", ["given"], ["Y"], then_branch=take, else_branch=pass_on),
    ]
    inputs = [
        helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 2)),
        helper.make_value_info("O", helper.make_optional_type_proto(tensor)),
    ]
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("N", 2))
    save_graph(path, helper.make_graph(nodes, "g", inputs, [output]))


def test_instances_share_one_session(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    first, second = loaded(version, 2)

    assert first.__dict__["_session"] is second.__dict__["_session"]


def test_model_ort_cannot_load_says_why_without_its_prefixes(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", op="NoSuchOp")

    with pytest.raises(LoadFailed) as caught:
        OnnxRuntime().load(version, CPU, 1)

    assert "NoSuchOp" in str(caught.value)
    assert "[ONNXRuntimeError]" not in str(caught.value)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="has CUDA"
)
def test_missing_cuda_provider_is_named(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    with pytest.raises(LoadFailed, match=r"cuda:0 was asked for, .*install onnxruntime-gpu"):
        OnnxRuntime().load(version, Device("cuda", 0, 1), 1)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (
            'parameters { key: "execution_mode" value { string_value: "2" } }',
            "execution_mode is '2'; it must be a number from 0 to 1",
        ),
        ("optimization { graph { level: 5 } }", "level is 5; allowed are -1, 0, 1 and 2"),
        (
            'model_operations { op_library_filename: "ops.so" }',
            "op_library_filename 'ops.so' is not in its folder",
        ),
    ],
)
def test_parameter_that_cannot_be_honoured_is_refused(
    tmp_path: Path, config: str, complaint: str
) -> None:
    version = make_version(tmp_path, config)
    save_unary(version.path / "model.onnx")

    with pytest.raises(LoadFailed, match=complaint):
        OnnxRuntime().load(version, CPU, 1)


def test_tuned_model_still_answers(tmp_path: Path) -> None:
    settings = {
        "intra_op_thread_count": "2",
        "inter_op_thread_count": "1",
        "execution_mode": "0",
        "enable_mem_arena": "1",
        "enable_mem_pattern": "0",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
    }
    text = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in settings.items()
    )
    version = make_version(tmp_path, text + "optimization { graph { level: -1 } }")
    save_unary(version.path / "model.onnx", op="Neg")
    (instance,) = loaded(version)

    (result,) = instance.execute(batch_of(member(X=np.ones((1, 4), np.float32)))).results

    assert tensors(result)["Y"].tolist() == [[-1.0] * 4]


@pytest.mark.parametrize(
    ("parameters", "safe"),
    [
        ({}, True),
        ({"intra_op_thread_count": "2"}, False),
        ({"intra_op_thread_count": "0"}, False),
        ({"execution_mode": "1"}, False),
    ],
)
def test_only_what_computes_on_the_callers_thread_may_run_on_the_event_loop(
    tmp_path: Path, parameters: dict[str, str], safe: bool
) -> None:
    text = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    )
    version = make_version(tmp_path, text)
    save_unary(version.path / "model.onnx")
    (instance,) = loaded(version)
    assert getattr(instance, "loop_safe", False) is safe
