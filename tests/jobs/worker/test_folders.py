"""What a job reads: its version with the config in force, and data of allowed places alone."""

from pathlib import Path

import pytest

from control.jobs.views import SourceFolder
from jobs.worker.folders import CannotRead, data_path, read_version


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "digits"
    (folder / "1" / "weights").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("as written")
    (folder / "1" / "model.onnx").write_text("model")
    (folder / "1" / "weights" / "0").write_text("weights")
    (folder / "data.npz").write_text("rows")
    return folder


def _in_force(_name: str, _number: int, _folder: Path) -> str:
    return "in force"


def test_version_is_copied_with_its_config_in_force(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "source"
    read_version(tmp_path, SourceFolder("digits", 1, folder=str(model)), _in_force, target)
    assert (target / "config.pbtxt").read_text() == "in force"
    assert (target / "weights" / "0").read_text() == "weights"


def test_version_of_the_store_is_found_by_its_snapshot(model: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "store" / "snapshots" / ("a" * 64)
    snapshot.mkdir(parents=True)
    model.rename(snapshot / "digits")
    source = SourceFolder("digits", 1, snapshot="a" * 64, digest="b" * 64)
    read_version(tmp_path / "store", source, _in_force, tmp_path / "source")
    assert (tmp_path / "source" / "model.onnx").read_text() == "model"


def test_version_that_has_gone_is_named(model: Path, tmp_path: Path) -> None:
    source = SourceFolder("digits", 7, folder=str(model))
    with pytest.raises(CannotRead, match="model 'digits' version 7 is not there any more"):
        read_version(tmp_path, source, _in_force, tmp_path / "source")


def test_data_lies_beside_the_version_or_below_an_allowed_folder(
    model: Path, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "rows.npz").write_text("rows")
    version = model / "1"
    assert data_path(version, model, (), "data.npz") == (model / "data.npz").resolve()
    found = data_path(version, model, (shelf,), str(shelf / "rows.npz"))
    assert found == (shelf / "rows.npz").resolve()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("absent.npz", "neither in the version's folder nor in its model's"),
        ("../other/secret", "neither in the version's folder nor in its model's"),
        ("/etc/passwd", "--job-data-dir"),
    ],
)
def test_data_elsewhere_is_refused(text: str, said: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=said):
        data_path(model / "1", model, (tmp_path / "shelf",), text)
