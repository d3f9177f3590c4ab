"""Label files come along with a source, and go along to a result."""

from pathlib import Path

import pytest

from jobs.worker.labels import carry_labels, label_files

CONFIG = 'name: "m" output { name: "y" dims: 2 label_filename: "labels.txt" }'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "names").mkdir(parents=True)
    (folder / "labels.txt").write_text("cat")
    (folder / "names/labels.txt").write_text("dog")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_files_that_a_config_names_are_copied(source: Path, target: Path) -> None:
    carry_labels(CONFIG, source, target)
    carry_labels(CONFIG.replace("labels.txt", "names/labels.txt"), source, target)
    assert (target / "labels.txt").read_text() == "cat"
    assert (target / "names/labels.txt").read_text() == "dog"


def test_a_file_that_the_result_has_stays_and_one_that_is_nowhere_is_not_made(
    source: Path, target: Path
) -> None:
    (target / "labels.txt").write_text("bird")
    carry_labels(CONFIG, source, target)
    carry_labels(CONFIG.replace("labels", "other"), source, target)
    assert [path.name for path in target.iterdir()] == ["labels.txt"]
    assert (target / "labels.txt").read_text() == "bird"


def test_nothing_is_written_through_a_link_of_the_result(
    source: Path, target: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (target / "names").symlink_to(tmp_path / "elsewhere")
    (target / "labels.txt").symlink_to(tmp_path / "elsewhere/made")
    carry_labels(CONFIG, source, target)
    carry_labels(CONFIG.replace("labels.txt", "names/labels.txt"), source, target)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["../labels.txt", "/etc/passwd", "a/../../b"])
def test_names_that_lead_out_of_the_folder_count_as_none(name: str) -> None:
    assert list(label_files(CONFIG.replace("labels.txt", name))) == []
    assert list(label_files("no config {")) == []
