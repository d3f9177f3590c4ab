"""A library of custom operators is loaded in worker processes, and in no other."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadFailed
from backends.loading import load
from backends.onnx.backend import OnnxRuntime
from backends.process.instance import HostedInstance
from backends.registry import runtime_for
from repository.model import ModelVersion
from server.fleet.checks.check import Checker
from support.native_code import loaders, operators
from support.runtime import CPU, batch_of, make_version, member, save_unary, with_config

CONFIG = 'backend: "onnxruntime" model_operations { op_library_filename: "ops.txt" }'


@pytest.fixture
def version(tmp_path: Path) -> ModelVersion:
    made = make_version(tmp_path, CONFIG)
    save_unary(made.path / "model.onnx")
    operators(made.path / "ops.txt", tmp_path / "loaded")
    return with_config(made, OnnxRuntime().complete(made, 4))


def test_a_model_with_operators_of_its_own_runs_in_a_worker_process(
    version: ModelVersion, tmp_path: Path
) -> None:
    (instance,) = load(version, CPU, ["m_0"]).instances
    try:
        assert isinstance(instance, HostedInstance)
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        (outputs,) = instance.execute(batch_of(member(X=rows))).results
        assert outputs["Y"].tolist() == rows.tolist()  # type: ignore[index,call-overload]
        assert loaders(tmp_path / "loaded") == [instance.pid]
    finally:
        instance.close()


def test_the_serving_process_never_loads_operators(version: ModelVersion, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"'ops\.txt' is native code, which is loaded in a worker"):
        OnnxRuntime().load(version, CPU, 1)
    assert os.getpid() not in loaders(tmp_path / "loaded")


def test_checking_a_model_does_not_load_its_operators(
    version: ModelVersion, tmp_path: Path
) -> None:
    async def check() -> None:
        checker = Checker()
        try:
            await checker.complete(version)
        finally:
            await checker.close()

    asyncio.run(check())
    assert loaders(tmp_path / "loaded") == []


def test_a_model_without_operators_of_its_own_stays_in_the_serving_process(tmp_path: Path) -> None:
    assert not runtime_for(make_version(tmp_path, 'backend: "onnxruntime"').config).hosted
