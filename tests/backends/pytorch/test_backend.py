"""PyTorch: real TorchScript and exported programs, read without torch and executed with it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.export import Dim

from backends.errors import ExecutionFailed, FaultyModel, LoadFailed
from backends.pytorch.backend import PyTorch
from backends.seam import Device, Instance, Result, Tensors
from repository.model import ModelVersion
from support.runtime import CPU, batch_of, make_version, member, with_config

pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated")

SUM_AND_DIFFERENCE = """
max_batch_size: 4
input { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
input { name: "INPUT__1" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 2 ] }
"""


class Scale(torch.nn.Module):
    """A dict of two outputs from one positional and one keyword input."""

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"SCALED": x * scale, "TOTAL": x.sum(dim=1, keepdim=True)}


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0


class SumAndDifference(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


def export(path: Path, model: torch.nn.Module, *args: Any, dims: Any, **kwargs: Any) -> None:
    torch.export.save(torch.export.export(model, args, kwargs, dynamic_shapes=dims), path)


def script(path: Path, model: torch.nn.Module) -> None:
    torch.jit.script(model).save(str(path))  # type: ignore[no-untyped-call]


@pytest.fixture
def scale(tmp_path: Path) -> ModelVersion:
    version = make_version(tmp_path)
    rows = Dim("rows", min=1, max=3)
    path = version.path / "model.pt2"
    dims = {"x": {0: rows}, "scale": {0: rows}}
    export(path, Scale(), torch.ones(2, 4), scale=torch.ones(2, 1), dims=dims)
    return version


def loaded(version: ModelVersion) -> Instance:
    completed = with_config(version, PyTorch().complete(version, 4))
    (instance,) = PyTorch().load(completed, CPU, 1).instances
    return instance


def tensors(result: Result) -> Tensors:
    assert isinstance(result, Mapping), result
    return result


# torch.export


def test_exported_program_completes_names_types_dims_and_batching(scale: ModelVersion) -> None:
    config = PyTorch().complete(scale, 4)

    assert config.backend == "pytorch"
    assert [(t.name, list(t.dims)) for t in config.input] == [("x", [4]), ("scale", [1])]
    assert [(t.name, list(t.dims)) for t in config.output] == [("SCALED", [4]), ("TOTAL", [1])]
    assert config.max_batch_size == 3  # the export's bound is below the default of 4
    assert config.HasField("dynamic_batching")


def test_batch_beyond_the_exports_bound_is_refused(scale: ModelVersion) -> None:
    version = with_config(scale, PyTorch().complete(scale, 4))
    version.config.max_batch_size = 8

    with pytest.raises(LoadFailed, match=r"max_batch_size is 8, but model\.pt2 takes at most 3"):
        PyTorch().complete(version, 4)


def test_fixed_export_does_not_batch(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    export(version.path / "model.pt2", Same(), torch.ones(1, 4), dims=None)

    config = PyTorch().complete(version, 4)
    assert config.default_model_filename == "model.pt2"

    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [1, 4]
    assert config.output[0].name == "OUTPUT__0"


def test_exported_program_answers_every_member(scale: ModelVersion) -> None:
    instance = loaded(scale)
    x, factor = np.ones((1, 4), np.float32), np.full((1, 1), 3, np.float32)

    first, second = instance.execute(
        batch_of(member(x=x, scale=factor), member(("TOTAL",), x=x * 2, scale=factor))
    ).results

    assert tensors(first)["SCALED"].tolist() == [[3.0] * 4]
    assert {name: array.tolist() for name, array in tensors(second).items()} == {"TOTAL": [[8.0]]}


def test_bfloat16_travels_bit_by_bit(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    sample = torch.ones(2, 4, dtype=torch.bfloat16)
    export(version.path / "model.pt2", Same(), sample, dims={"x": {0: Dim("n", max=8)}})
    sent = np.array([[1.5, -2.0, 3.25, 1e30]], ml_dtypes.bfloat16)

    (result,) = loaded(version).execute(batch_of(member(x=sent))).results

    assert tensors(result)["OUTPUT__0"].dtype == sent.dtype
    assert tensors(result)["OUTPUT__0"].tobytes() == sent.tobytes()


def test_read_only_input_is_taken_without_a_warning(scale: ModelVersion) -> None:
    x = np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32).reshape(1, 4)

    (result,) = (
        loaded(scale).execute(batch_of(member(x=x, scale=np.ones((1, 1), np.float32)))).results
    )

    assert tensors(result)["TOTAL"].tolist() == [[4.0]]


def test_completing_imports_no_torch(scale: ModelVersion) -> None:
    code = (
        "import sys; from pathlib import Path; from backends.pytorch.backend import PyTorch; "
        "from repository.model import ModelConfig, ModelVersion; p = Path(sys.argv[1]); "
        "PyTorch().complete(ModelVersion('m', 1, p.parent, p, ModelConfig(), ''), 4); "
        "assert 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code, str(scale.path)], check=True, timeout=180)


# TorchScript


def test_torchscript_without_types_is_refused_with_a_config_to_paste(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    script(version.path / "model.pt", SumAndDifference())

    with pytest.raises(LoadFailed) as caught:
        PyTorch().complete(version, 4)

    stanza = str(caught.value).partition("for example: ")[2]
    pasted = make_version(tmp_path, stanza)
    assert [tensor.name for tensor in pasted.config.input] == ["a", "b"]
    assert [tensor.name for tensor in pasted.config.output] == ["OUTPUT__0", "OUTPUT__1"]
    assert PyTorch().complete(pasted, 4).backend == "pytorch"


@pytest.mark.parametrize("names", [("INPUT__0", "INPUT__1"), ("a", "b"), ("FIRST", "SECOND")])
def test_torchscript_inputs_go_by_index_by_name_or_by_order(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    config = SUM_AND_DIFFERENCE.replace("INPUT__0", names[0]).replace("INPUT__1", names[1])
    version = make_version(tmp_path, config)
    script(version.path / "model.pt", SumAndDifference())
    first, second = np.full((1, 2), 5, np.float32), np.full((1, 2), 3, np.float32)

    (result,) = (
        loaded(version)
        .execute(batch_of(member(**dict(zip(names, (first, second), strict=True)))))
        .results
    )

    assert tensors(result)["OUTPUT__0"].tolist() == [[8.0, 8.0]]
    assert tensors(result)["OUTPUT__1"].tolist() == [[2.0, 2.0]]


def test_traced_model_returns_its_dict_by_name(tmp_path: Path) -> None:
    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"LOGITS": x * 2, "TOP": x.max(dim=1, keepdim=True).values}

    config = """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
    output { name: "TOP" data_type: TYPE_FP32 dims: [ 1 ] }
    """
    version = make_version(tmp_path, config)
    traced = torch.jit.trace(Named(), (torch.ones(1, 3),), strict=False)
    traced.save(str(version.path / "model.pt"))

    (result,) = (
        loaded(version).execute(batch_of(member(x=np.arange(3, dtype=np.float32)[None]))).results
    )

    assert {name: array.tolist() for name, array in tensors(result).items()} == {"TOP": [[2.0]]}


def test_too_many_inputs_are_refused_naming_the_arguments(tmp_path: Path) -> None:
    extra = 'input { name: "C" data_type: TYPE_FP32 dims: [ 2 ] }'
    version = make_version(tmp_path, SUM_AND_DIFFERENCE + extra)
    script(version.path / "model.pt", SumAndDifference())

    with pytest.raises(LoadFailed, match=r"lists 3 inputs, but forward of model\.pt takes 2: a, b"):
        PyTorch().complete(version, 4)


def test_value_torch_refuses_is_an_error_in_its_words(tmp_path: Path) -> None:
    version = make_version(tmp_path, SUM_AND_DIFFERENCE)
    script(version.path / "model.pt", SumAndDifference())
    a, b = np.ones((1, 2), np.float32), np.ones((1, 3), np.float32)

    with pytest.raises(ExecutionFailed, match=r"model 'm' version 1: torch: .*size of tensor"):
        loaded(version).execute(batch_of(member(INPUT__0=a, INPUT__1=b)))


def test_a_device_that_fails_is_no_error_of_the_batch(scale: ModelVersion) -> None:
    """The worker ends by it: its device would fail every later batch."""
    instance = loaded(scale)

    def fail(inputs: Tensors) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    instance._call = fail  # type: ignore[attr-defined]
    x, factor = np.ones((1, 4), np.float32), np.ones((1, 1), np.float32)

    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        instance.execute(batch_of(member(x=x, scale=factor)))


def test_missing_output_is_a_faulty_model(tmp_path: Path) -> None:
    config = """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "B" data_type: TYPE_FP32 dims: [ 2 ] }
    """
    version = make_version(tmp_path, config)
    script(version.path / "model.pt", Same())
    (instance,) = PyTorch().load(version, CPU, 1).instances

    with pytest.raises(FaultyModel, match="forward returned 1 tensors, but its config lists A, B"):
        instance.execute(batch_of(member(x=np.ones((1, 2), np.float32))))


# refusing


def test_saved_module_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    torch.save(Same().state_dict(), version.path / "model.pt")

    with pytest.raises(LoadFailed, match=r"holds no TorchScript .*torch\.jit\.save"):
        PyTorch().complete(version, 4)


def test_damaged_torchscript_is_refused_readably(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (version.path / "model.pt").write_bytes(b"PK\x03\x04 not a zip")

    with pytest.raises(LoadFailed, match="is not a PyTorch archive, or is cut short"):
        PyTorch().complete(version, 4)


def test_program_in_an_unknown_layout_is_refused_readably(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    with ZipFile(version.path / "model.pt2", "w") as archive:
        archive.writestr("m/models/model.json", '{"graph_module": []}')

    with pytest.raises(LoadFailed, match="is no program this server reads"):
        PyTorch().complete(version, 4)


def test_strings_are_refused_before_torch_sees_them(tmp_path: Path) -> None:
    config = SUM_AND_DIFFERENCE.replace("TYPE_FP32", "TYPE_STRING", 1)
    version = make_version(tmp_path, config)
    script(version.path / "model.pt", SumAndDifference())

    with pytest.raises(LoadFailed, match="'INPUT__0' is TYPE_STRING, and torch has no string"):
        PyTorch().load(version, CPU, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_missing_cuda_device_is_named(scale: ModelVersion) -> None:
    with pytest.raises(LoadFailed, match=r"cuda:0 was asked for, .*sees 0 CUDA devices"):
        PyTorch().load(scale, Device("cuda", 0, 1), 1)


def test_a_program_may_be_served_under_the_configs_own_names_in_order(tmp_path: Path) -> None:
    version = make_version(
        tmp_path,
        """
        max_batch_size: 2
        input { name: "LEFT" data_type: TYPE_FP32 dims: [ 2 ] }
        input { name: "RIGHT" data_type: TYPE_FP32 dims: [ 2 ] }
        """,
    )
    rows = Dim("rows", min=1, max=8)
    dims = {"a": {0: rows}, "b": {0: rows}}
    samples = torch.ones(3, 2), torch.zeros(3, 2)
    export(version.path / "model.pt2", SumAndDifference(), *samples, dims=dims)

    asked = member(RIGHT=np.array([[1, 2]], np.float32), LEFT=np.array([[5, 5]], np.float32))
    (result,) = loaded(version).execute(batch_of(asked)).results

    assert [array.tolist() for array in tensors(result).values()] == [[[6, 7]], [[4, 3]]]
