"""Which files a snapshot has after an import."""

import pytest

from control.imports.plan import SnapshotPlan, plan
from control.repository_settings import SAFE_FORMATS
from repository.snapshots.digest import FileEntry
from repository.sources.errors import BadLayout

BEFORE = [FileEntry(path, 1, "0" * 64) for path in ("1/model.onnx", "config.pbtxt", "labels.txt")]


def planned(
    *paths: str, version: int | None = None, highest: int = 0, before: bool = False
) -> SnapshotPlan:
    return plan(paths, version, BEFORE if before else (), highest, tuple(SAFE_FORMATS))


def kept(made: SnapshotPlan) -> list[str]:
    return [file.path for file in made.kept]


def test_a_lone_artefact_becomes_the_next_version_beside_what_there_is() -> None:
    made = planned("resnet.onnx", highest=4, before=True)
    assert made.placed == {"5/model.onnx": "resnet.onnx"}
    assert made.brought == (5,)
    assert kept(made) == ["1/model.onnx", "config.pbtxt", "labels.txt"]


def test_a_number_that_is_asked_for_is_taken() -> None:
    assert planned("a.onnx", version=9).placed == {"9/model.onnx": "a.onnx"}


def test_a_config_that_came_along_replaces_the_one_before() -> None:
    made = planned("config.pbtxt", "2/model.onnx", before=True, highest=1)
    assert made.placed == {"config.pbtxt": "config.pbtxt", "2/model.onnx": "2/model.onnx"}
    assert kept(made) == ["1/model.onnx", "labels.txt"]


def test_of_a_version_that_came_along_nothing_is_kept() -> None:
    assert kept(planned("1/other.onnx", before=True)) == ["config.pbtxt", "labels.txt"]


def test_one_version_of_a_model_folder_can_be_asked_for() -> None:
    made = planned("config.pbtxt", "1/model.onnx", "2/model.onnx", "10/model.onnx", version=2)
    assert sorted(made.placed) == ["2/model.onnx", "config.pbtxt"]
    assert made.brought == (2,)


def test_a_version_that_a_model_folder_lacks_is_refused_naming_those_it_has() -> None:
    with pytest.raises(BadLayout, match="without version 3; it has 1, 2"):
        planned("1/model.onnx", "2/model.onnx", version=3)


def test_a_model_folder_without_versions_is_refused() -> None:
    with pytest.raises(BadLayout, match="found no folder '1/', '2/'"):
        planned("config.pbtxt", "labels.txt")


def test_of_a_checkpoint_what_is_not_taken_is_left_out() -> None:
    paths = ("config.json", "model.safetensors", "pytorch_model.bin", "LICENSE", "README.md")
    made = planned(*paths)
    assert sorted(made.placed) == ["1/README.md", "1/config.json", "1/model.safetensors"]


@pytest.mark.parametrize("path", ["1/model.py", "1/weights.pkl", "1/model.pt", "1/run.sh"])
def test_files_that_can_carry_code_or_are_of_no_format_are_refused(path: str) -> None:
    with pytest.raises(BadLayout, match=f"'{path}' cannot be imported"):
        planned("1/model.onnx", path)
