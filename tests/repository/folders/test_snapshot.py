"""One look at repositories on a real disk."""

import logging
import os
import shutil
import stat
import time
import tracemalloc
from pathlib import Path

import pytest

from repository.errors import BadRepository
from repository.folders import snapshot as scanning
from repository.folders.snapshot import Scanner, scan
from repository.folders.walk import MOST_ENTRIES
from repository.model import ModelFolder
from support.repository import CONFIG, put_model, put_version


def only(root: Path) -> ModelFolder:
    snapshot = scan([root])
    assert snapshot.problems == {}
    (model,) = snapshot.models.values()
    return model


def problem(root: Path, name: str = "m") -> str:
    snapshot = scan([root])
    assert name not in snapshot.models
    return snapshot.problems[name]


def test_a_model_has_its_config_and_all_its_versions_in_order(tmp_path: Path):
    folder = put_model(tmp_path, "digits", 10, 2, 1)
    model = only(tmp_path)
    assert (model.name, model.folder, model.repository) == ("digits", folder, tmp_path)
    assert model.config.max_batch_size == 8
    assert [version.number for version in model.versions] == [1, 2, 10]
    assert model.versions[2].path == folder / "10"
    assert model.versions[0].config is model.config


def test_a_model_without_config_has_an_empty_one_with_its_name(tmp_path: Path):
    put_model(tmp_path, "lone", 1, config=None)
    config = only(tmp_path).config
    assert config.name == "lone"
    config.ClearField("name")
    assert config.ByteSize() == 0


def test_folders_that_look_like_versions_are_ignored_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = put_model(tmp_path, "m", 1)
    for name in ("01", "v2", "0", "warmup"):
        (folder / name).mkdir()
    scanner = Scanner([tmp_path])
    with caplog.at_level(logging.WARNING):
        scanner.build(scanner.look())
        put_version(folder, 2)
        snapshot = scanner.build(scanner.look())
    assert [version.number for version in snapshot.models["m"].versions] == [1, 2]
    assert sorted(record.args[0].name for record in caplog.records) == ["0", "01", "v2"]


def test_a_name_in_two_repositories_is_a_problem_naming_both(tmp_path: Path):
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        put_model(root, "m", 1)
    put_model(roots[0], "alone", 1)
    snapshot = scan(roots)
    assert list(snapshot.models) == ["alone"]
    assert f"'{roots[0]}' and '{roots[1]}'" in snapshot.problems["m"]


def test_a_broken_config_is_a_problem_with_every_finding_and_spares_the_others(tmp_path: Path):
    put_model(tmp_path, "m", 1, config="nam: 1\nmax_batch_size: x")
    put_model(tmp_path, "good", 1)
    snapshot = scan([tmp_path])
    assert list(snapshot.models) == ["good"]
    assert "config.pbtxt:1:1 E102" in snapshot.problems["m"]
    assert "config.pbtxt:2:17 E105" in snapshot.problems["m"]


def test_a_config_that_breaks_a_rule_is_a_problem(tmp_path: Path):
    put_model(tmp_path, "m", 1, config="max_batch_size: -4")
    assert problem(tmp_path).endswith("m/config.pbtxt:1:1 E103 max_batch_size must be ≥ 0, got -4")


def test_a_folder_of_other_things_is_a_problem_and_an_empty_or_hidden_one_is_nothing(
    tmp_path: Path,
):
    (tmp_path / "empty").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("x")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("x")
    snapshot = scan([tmp_path])
    assert snapshot.models == {}
    assert list(snapshot.problems) == ["notes"]
    assert "put the model in 'notes/1/'" in snapshot.problems["notes"]


@pytest.mark.parametrize("link", ["1", "1/weights", "config.pbtxt", "labels.txt"])
def test_a_link_out_of_the_repository_is_a_problem(tmp_path: Path, link: str):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    folder = put_model(root, "m", *([] if link == "1" else [1]), config=None)
    (folder / link).symlink_to(outside)
    assert "E206 is a link out of the repository" in problem(root)


def test_a_model_folder_that_is_a_link_out_is_a_problem(tmp_path: Path):
    put_model(tmp_path / "outside", "m", 1)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "m").symlink_to(tmp_path / "outside" / "m")
    assert "E206" in problem(tmp_path / "root")


def test_a_link_inside_the_repository_is_followed(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    (folder / "2").symlink_to(folder / "1")
    first, second = only(tmp_path).versions
    assert first.digest == second.digest


def test_a_broken_link_and_a_loop_of_links_are_problems(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    (folder / "1" / "gone").symlink_to(folder / "nothing")
    looped = put_model(tmp_path, "looped", 1)
    (looped / "1" / "again").symlink_to(looped / "1")
    assert "m/1/gone E200 cannot be read" in problem(tmp_path)
    assert "E200 cannot be read: Too many levels" in problem(tmp_path, "looped")


def test_a_link_to_itself_spares_the_rest_of_the_repository(tmp_path: Path):
    put_model(tmp_path, "m", 1)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert only(tmp_path).name == "m"


def test_too_many_files_are_a_problem(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    for number in range(MOST_ENTRIES):
        os.mknod(folder / "1" / str(number))
    assert "E207 has more than 10000 files" in problem(tmp_path)


def test_a_config_that_is_a_pipe_does_not_hang_the_scan(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1, config=None)
    os.mkfifo(folder / "config.pbtxt")
    assert "E210 cannot be read: it is a named pipe" in problem(tmp_path)


@pytest.mark.parametrize("place", ["1/model.onnx", "1/deep/er", "labels.txt"])
def test_a_pipe_or_a_socket_among_the_files_is_a_problem_that_names_it(tmp_path: Path, place: str):
    folder = put_model(tmp_path, "m", 1)
    (folder / place).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / place)
    assert f"{place} E210 is a named pipe" in problem(tmp_path)
    (folder / place).unlink()
    os.mknod(folder / place, 0o600 | stat.S_IFSOCK)
    assert f"{place} E210 is a socket" in problem(tmp_path)


def test_the_same_size_and_mtime_hide_no_other_content(tmp_path: Path):
    """As `cp -p` and `rsync -t` leave it; weights of another training have the same size."""
    folder = put_model(tmp_path, "m", 1)
    weights, config = folder / "1" / "model.bin", folder / "config.pbtxt"
    os.utime(weights, ns=(1, 1))
    os.utime(config, ns=(1, 1))
    scanner = Scanner([tmp_path])
    before = scanner.build(scanner.look()).models["m"]
    weights.write_bytes(bytes(len(weights.read_bytes())))
    os.utime(weights, ns=(1, 1))
    config.write_text(config.read_text().replace("8", "4"))
    os.utime(config, ns=(1, 1))
    after = scanner.build(scanner.look()).models["m"]
    assert after.versions[0].digest != before.versions[0].digest
    assert after.config != before.config


def test_a_folder_whose_name_is_not_text_is_a_problem_that_any_wire_can_carry(tmp_path: Path):
    put_model(tmp_path, os.fsdecode(b"m\xff"), 1)
    reason = problem(tmp_path, "m\ufffd")
    assert "E200 'm\ufffd' is not a UTF-8 name" in reason
    assert reason.encode()


def test_a_root_that_is_not_there_is_an_error_naming_it(tmp_path: Path):
    with pytest.raises(BadRepository, match="nowhere' cannot be read: No such file"):
        scan([tmp_path / "nowhere"])


def test_a_changed_version_changes_only_its_own_digest(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1, 2)
    before = only(tmp_path)
    (folder / "2" / "model.bin").write_bytes(b"other weights")
    after = only(tmp_path)
    assert after.versions[0].digest == before.versions[0].digest
    assert after.versions[1].digest != before.versions[1].digest
    assert after.core_digest == before.core_digest


def test_instances_have_a_digest_of_their_own(tmp_path: Path):
    put_model(tmp_path, "m", 1)
    before = only(tmp_path)
    put_model(tmp_path, "m", config=CONFIG + "instance_group { count: 2 }")
    after = only(tmp_path)
    assert after.core_digest == before.core_digest
    assert after.instances_digest != before.instances_digest


@pytest.mark.parametrize("extra", ["version_policy { all {} }", "# a comment", ""])
def test_policy_comments_and_touching_do_not_change_the_core_digest(tmp_path: Path, extra: str):
    put_model(tmp_path, "m", 1)
    before = only(tmp_path)
    put_model(tmp_path, "m", config=CONFIG + extra)
    os.utime(tmp_path / "m" / "config.pbtxt", ns=(1, 1))
    after = only(tmp_path)
    assert (after.core_digest, after.instances_digest) == (
        before.core_digest,
        before.instances_digest,
    )


@pytest.mark.parametrize("side", ["labels.txt", "warmup/sample"])
def test_a_side_file_changes_the_core_digest(tmp_path: Path, side: str):
    folder = put_model(tmp_path, "m", 1)
    before = only(tmp_path)
    (folder / side).parent.mkdir(exist_ok=True)
    (folder / side).write_text("x")
    assert only(tmp_path).core_digest != before.core_digest


def test_python_caches_and_editor_files_change_nothing(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    before = only(tmp_path)
    (folder / "1" / "__pycache__").mkdir()
    (folder / "1" / "__pycache__" / "model.pyc").write_text("x")
    (folder / ".config.pbtxt.swp").write_text("x")
    (folder / "config.pbtxt~").write_text("x")
    assert only(tmp_path) == before


def test_an_unchanged_model_is_the_same_object_in_the_next_snapshot(tmp_path: Path):
    put_model(tmp_path, "m", 1)
    scanner = Scanner([tmp_path])
    first = scanner.build(scanner.look())
    second = scanner.build(scanner.look())
    assert second.models["m"] is first.models["m"]
    assert second.revision > first.revision


def test_two_hundred_models_are_scanned_again_in_a_blink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(200):
        put_model(tmp_path, f"m{number}", 1, 2, 3)
        os.utime(tmp_path / f"m{number}" / "config.pbtxt", ns=(1, 1))
    scanner = Scanner([tmp_path])
    scanner.build(scanner.look())
    made: list[str] = []
    monkeypatch.setattr(scanning, "model_folder", lambda state: made.append(state.name))
    started = time.thread_time()
    scanner.build(scanner.look())
    assert time.thread_time() - started < 5  # 0.05 on an idle machine
    assert made == []


def test_nothing_is_kept_of_folders_that_are_gone(tmp_path: Path):
    scanner = Scanner([tmp_path], sealed=True)
    comment = f"# {'x' * 1000}\n" * 500

    def turn(number: int) -> int:
        folder = put_model(tmp_path, f"m{number}", 1, config=comment + CONFIG)
        os.utime(folder / "config.pbtxt", (1, 1))  # so old that its bytes are kept
        assert f"m{number}" in scanner.build(scanner.look()).models
        shutil.rmtree(folder)
        scanner.build(scanner.look())
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = turn(0)
        for number in range(1, 9):
            after = turn(number)
    finally:
        tracemalloc.stop()
    assert after - before < len(comment)
