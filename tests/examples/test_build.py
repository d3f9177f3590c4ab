"""The example repository: what is in it, how good the networks are, when it is rebuilt."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from examples.build import EXAMPLES, build_all, digest_of
from examples.digits.images import split

ROOT = Path(__file__).parents[2]


def test_every_example_has_a_config_that_parses_and_its_versions(repository: Path) -> None:
    for example in EXAMPLES:
        text = (repository / example.name / "config.pbtxt").read_text()
        config = text_format.Parse(text, ModelConfig())
        assert config.name == example.name
        versions = {path.name for path in (repository / example.name).iterdir() if path.is_dir()}
        assert versions == {str(number) for number in example.versions}


def test_an_ensemble_brings_its_steps_models(repository: Path) -> None:
    for example in EXAMPLES:
        for part in example.parts:
            text = (repository / part / "config.pbtxt").read_text()
            assert text_format.Parse(text, ModelConfig()).name == part
            assert (repository / part / "1").is_dir()


def test_version_one_of_digits_is_weak_and_version_two_is_better(repository: Path) -> None:
    weak, better = (_accuracy(repository / "digits" / version) for version in ("1", "2"))
    assert 0.80 <= weak <= 0.95
    assert better >= 0.98


def test_onnx_models_are_single_files_with_a_free_batch_dimension(repository: Path) -> None:
    for name in ("digits/1", "digits/2", "simple/1"):
        assert [path.name for path in (repository / name).iterdir()] == ["model.onnx"]
        session = onnxruntime.InferenceSession(repository / name / "model.onnx")
        tensors = session.get_inputs() + session.get_outputs()
        assert all(isinstance(tensor.shape[0], str) for tensor in tensors)


def test_simple_adds_and_subtracts(repository: Path) -> None:
    session = onnxruntime.InferenceSession(repository / "simple" / "1" / "model.onnx")
    first = np.arange(32, dtype=np.int32).reshape(2, 16)
    second = np.full((2, 16), 3, np.int32)
    total, difference = session.run(None, {"INPUT0": first, "INPUT1": second})
    np.testing.assert_array_equal(total, first + second)
    np.testing.assert_array_equal(difference, first - second)


def test_labels_are_as_many_as_the_logits(repository: Path) -> None:
    assert len((repository / "digits" / "labels.txt").read_text().split()) == 10


def test_a_second_build_changes_nothing_and_leaves_torch_alone(
    repository: Path,
) -> None:
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    check = (
        "import sys, pathlib; from examples.build import build_all; "
        f"assert build_all(pathlib.Path({str(repository)!r})) == []; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=True, timeout=180)
    assert build_all(repository) == []
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before


def test_a_stale_example_is_rebuilt_and_a_stranger_version_stays(tmp_path: Path) -> None:
    build_all_but_the_trained(tmp_path)
    (tmp_path / "simple" / "7").mkdir()
    (tmp_path / ".built" / "simple").write_text("of other sources")
    assert build_all(tmp_path) == ["simple"]
    assert {"1", "7", "config.pbtxt"} == {path.name for path in (tmp_path / "simple").iterdir()}


@pytest.mark.slow
def test_more_versions_are_a_good_three_and_a_corrupt_four(
    repository: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "examples.digits.more_versions", "--into", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    assert _accuracy(tmp_path / "digits" / "3") >= 0.98
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidProtobuf):
        onnxruntime.InferenceSession(tmp_path / "digits" / "4" / "model.onnx")


def build_all_but_the_trained(into: Path) -> None:
    """Build for real what takes no training; pass the others off as built."""
    for example in EXAMPLES:
        if example.note:  # it says what is trained or exported
            for name in (example.name, *example.parts):
                for number in example.versions:
                    (into / name / str(number)).mkdir(parents=True)
            (into / ".built").mkdir(exist_ok=True)
            (into / ".built" / example.name).write_text(digest_of(example))
    build_all(into)


def _accuracy(version: Path) -> float:
    held_out = split().held_out
    session = onnxruntime.InferenceSession(version / "model.onnx")
    (logits,) = session.run(["LOGITS"], {"IMAGE": held_out.images})
    return float((logits.argmax(axis=1) == held_out.labels).mean())
