"""Nobody but the server's user reads what it keeps."""

import os
import stat
from pathlib import Path

import pytest

from control.state_paths import close_folder
from support.yard import Yard, write_identity, yard

OTHERS = 0o077


def open_to_others(top: Path) -> list[str]:
    return sorted(
        f"{path.relative_to(top)} {stat.filemode(path.lstat().st_mode)}"
        for path in (top, *top.rglob("*"))
        if not path.is_symlink() and path.lstat().st_mode & OTHERS
    )


@pytest.mark.slow
def test_everything_the_server_keeps_is_its_users_alone_and_made_so_at_start(
    tmp_path: Path,
) -> None:
    """Pushed models, the database with its WAL, git, sockets, the log; whatever the umask was."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    umask = os.umask(0o000)
    try:
        with yard(tmp_path, log_file=str(tmp_path / "own.log"), access_log="access.log") as y:
            folder = y.repository()
            write_identity(folder, "echo", 1)
            y.commit(folder, "one")
            y.push(folder)
            y.wait_versions("echo", 1)
            running = open_to_others(state)
            logs = [(tmp_path / name).stat().st_mode & OTHERS for name in ("own.log", "access.log")]
            snapshot = next((state / "store" / "snapshots").glob("*/*/config.pbtxt"))
            backup = tmp_path / "all.tar"
            y.cli("backup", str(backup))

            opened = [state, state / "modelyard.db", state / "modelyard.db-wal", state / "run"]
            opened += [state / "store" / "git" / "models.git" / "config", snapshot]
            for path in opened:
                path.chmod(0o755)
            y.again()
            tightened = open_to_others(state)
        (tmp_path / "other").mkdir()
        other = Yard(tmp_path / "other", {}, {})
        other.cli("restore", str(backup))
    finally:
        os.umask(umask)

    assert running == []
    assert logs == [0, 0]
    assert backup.stat().st_mode & OTHERS == 0
    assert tightened == []
    assert open_to_others(other.state) == []


def test_only_what_is_ours_in_a_state_folder_is_closed_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    from repository.files.private import tighten_tree

    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir(mode=0o755)
    (top / "a").mkdir(parents=True)
    (top / "a" / "file").write_text("x")
    (top / "a" / "link").symlink_to(outside)
    (top / "a" / "file").chmod(0o644)
    top.chmod(0o755)
    before = outside.stat().st_mode

    assert tighten_tree(top) == []
    assert open_to_others(top) == []
    assert outside.stat().st_mode == before


def test_a_folder_of_somebody_else_is_left_open_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of the kernel stands for a volume whose mode is not ours to change, root or not."""
    close_folder(Path("/proc/1"))
    assert "other users can read /proc/1," in caplog.text
