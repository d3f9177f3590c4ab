"""Warmup samples, on the real identity instance."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from backends.errors import ExecutionFailed, LoadFailed
from backends.loading import load
from backends.seam import Batch, BatchResult, Device, Instance
from repository.model import ModelConfig, ModelVersion
from server.fleet.warmup import warm
from server.signature import compile_signature
from support.server import identity_config


class Recorded:
    """A real instance, and the batches it was given."""

    device, cores, ready = "cpu", 1, True

    def __init__(self, inner: Instance, error: Exception | None = None) -> None:
        self._inner = inner
        self._error = error
        self.batches: list[Batch] = []

    def changed(self) -> None: ...

    def execute(self, batch: Batch) -> BatchResult:
        self.batches.append(batch)
        if self._error is not None:
            raise self._error
        return self._inner.execute(batch)

    def close(self) -> None:
        self._inner.close()


def warmed(
    folder: Path, sample: str, kind: str = "TYPE_FP32", error: Exception | None = None
) -> list[Batch]:
    """The batches `sample` was executed as."""
    text = identity_config("m", extra=f"model_warmup {{ {sample} }}")
    config = text_format.Parse(text.replace("TYPE_FP32", kind, 2), ModelConfig())
    version = ModelVersion("m", 1, folder, folder / "1", config, "")
    (inner,) = load(version, Device("cpu", 0, 1), ["m_0"]).instances
    instance = Recorded(inner, error)
    try:
        warm(version, compile_signature(config, 1), instance)
    finally:
        instance.close()
    return instance.batches


def sample(given: str, rest: str = "") -> str:
    return f'name: "w" {rest} inputs {{ key: "INPUT0" value {{ {given} }} }}'


def test_a_sample_becomes_batch_size_requests_run_count_times(tmp_path: Path) -> None:
    batches = warmed(
        tmp_path, sample("data_type: TYPE_FP32 dims: 4 zero_data: true", "batch_size: 3 count: 2")
    )
    assert [len(batch.members) for batch in batches] == [3, 3]
    assert batches[0].members[0].inputs["INPUT0"].tolist() == [[0, 0, 0, 0]]


def test_random_data_is_within_range_and_the_same_every_time(tmp_path: Path) -> None:
    given = sample("data_type: TYPE_FP32 dims: 4 random_data: true")
    first, second = (warmed(tmp_path, given)[0].members[0].inputs["INPUT0"] for _ in range(2))
    assert first.dtype == np.float32
    assert 0 <= first.min() < first.max() < 1
    assert (first == second).all()


@pytest.mark.parametrize("choice", ["zero_data", "random_data"])
def test_strings_can_be_made_up(tmp_path: Path, choice: str) -> None:
    given = sample(f"data_type: TYPE_STRING dims: 2 {choice}: true")
    tensor = warmed(tmp_path, given, kind="TYPE_STRING")[0].members[0].inputs["INPUT0"]
    assert tensor.shape == (1, 2)
    assert all(isinstance(element, bytes) for element in tensor.ravel())


def test_a_file_is_read_from_the_models_warmup_folder(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "row").write_bytes(np.array([1, 2], np.float32).tobytes())
    given = sample('data_type: TYPE_FP32 dims: 2 input_data_file: "row"')
    assert warmed(tmp_path, given)[0].members[0].inputs["INPUT0"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (sample("data_type: TYPE_FP32 dims: 4 zero_data: true", "batch_size: 9"), "batch_size 9"),
        (sample("data_type: TYPE_INT32 dims: 4 zero_data: true"), "is INT32, .* takes FP32"),
        (sample("data_type: TYPE_FP32 dims: 4 dims: 4 zero_data: true"), r"dims \[4, 4\]"),
        (sample('data_type: TYPE_FP32 dims: 2 input_data_file: "gone"'), "cannot read .*'gone'"),
        (sample('data_type: TYPE_FP32 dims: 2 input_data_file: "../x"'), "outside the model"),
        (
            sample("data_type: TYPE_FP32 dims: 134217728 zero_data: true", "batch_size: 3"),
            "batch_size 3 with rows of 536870912 bytes",
        ),
        ('name: "w"', r"lacks required input\(s\) \['INPUT0'\]"),
        ('name: "w" inputs { key: "X" value { dims: 1 } }', "has input 'X'"),
    ],
)
def test_a_sample_that_does_not_fit_fails_the_load_and_says_why(
    tmp_path: Path, given: str, text: str
) -> None:
    with pytest.raises(LoadFailed, match=f"model 'm' version 1: warmup sample 'w'.*{text}"):
        warmed(tmp_path, given)


def test_made_up_strings_count_as_the_objects_they_become(tmp_path: Path) -> None:
    given = sample("data_type: TYPE_STRING dims: 100000000 zero_data: true")
    with pytest.raises(LoadFailed, match=r"dims \[100000000\].* at most 1073741824 bytes"):
        warmed(tmp_path, given, kind="TYPE_STRING")


def test_a_file_of_the_wrong_size_fails_the_load(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "row").write_bytes(b"123")
    with pytest.raises(LoadFailed, match=r"'row': .*Expected 8, got 3"):
        warmed(tmp_path, sample('data_type: TYPE_FP32 dims: 2 input_data_file: "row"'))


def test_a_model_that_fails_on_its_sample_fails_to_load(tmp_path: Path) -> None:
    given = sample("data_type: TYPE_FP32 dims: 4 zero_data: true")
    with pytest.raises(LoadFailed, match="warmup sample 'w' failed: out of luck"):
        warmed(tmp_path, given, error=ExecutionFailed("out of luck"))
