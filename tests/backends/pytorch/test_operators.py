"""Operators of one's own for TorchScript: their library is loaded in the model's worker alone."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.errors import LoadFailed
from backends.loading import load
from backends.pytorch.backend import PyTorch
from repository.model import ModelVersion
from support.runtime import CPU, batch_of, make_version, member

pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated")

SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>
static at::Tensor twice(const at::Tensor& x) { return at::mul(x, 2.0); }
TORCH_LIBRARY(modelyard_test, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""
CONFIG = """
backend: "pytorch"
max_batch_size: 4
input { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
model_operations { op_library_filename: "ops.so" }
"""
SAVE = """
import sys, torch
torch.ops.load_library(sys.argv[1])

class Twice(torch.nn.Module):
    def forward(self, x):
        return torch.ops.modelyard_test.twice(x)

torch.jit.trace(Twice(), torch.ones(1, 2)).save(sys.argv[2])
"""


def build_library(path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    own = Path(torch.__file__).parent
    command = [compiler, "-shared", "-fPIC", "-std=c++20", "-x", "c++", "-", "-o", str(path)]
    command += [f"-I{own / 'include'}", f"-L{own / 'lib'}", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, input=SOURCE.encode(), check=True, timeout=300)


@pytest.mark.slow
def test_a_model_runs_operators_of_its_own_library(tmp_path: Path) -> None:
    version = make_version(tmp_path, CONFIG)
    library, model = version.folder / "ops.so", version.path / "model.pt"
    build_library(library)
    command = [sys.executable, "-W", "ignore", "-c", SAVE, str(library), str(model)]
    subprocess.run(command, check=True, timeout=300)
    with pytest.raises(LoadFailed, match="is native code, which is loaded in a worker process"):
        PyTorch().load(version, CPU, 1)
    (instance,) = load(version, CPU, ["m_0"]).instances
    try:
        x = np.array([[1, 2], [3, 4]], np.float32)
        (outputs,) = instance.execute(batch_of(member(INPUT__0=x))).results
        assert isinstance(outputs, Mapping)
        np.testing.assert_array_equal(outputs["OUTPUT__0"], x * 2)
    finally:
        instance.close()


@pytest.fixture
def version(tmp_path: Path) -> ModelVersion:
    made = make_version(tmp_path, CONFIG)
    model = torch.jit.script(torch.nn.ReLU())  # type: ignore[no-untyped-call]
    model.save(str(made.path / "model.pt"))
    return made


def test_what_is_no_library_is_the_loads_reason(version: ModelVersion) -> None:
    (version.folder / "ops.so").write_text("not a library")
    with pytest.raises(LoadFailed, match=r"torch cannot load the operators in ops\.so: OSError: "):
        load(version, CPU, ["m_0"])


def test_a_library_that_is_not_there_is_the_loads_reason(version: ModelVersion) -> None:
    with pytest.raises(LoadFailed, match=r"op_library_filename 'ops\.so' is not in its folder"):
        load(version, CPU, ["m_0"])
