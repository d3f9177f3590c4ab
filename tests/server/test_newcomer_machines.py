"""What a newcomer's machine lacks or has in use: a port, a state folder, git, torch, a compiler,
memory, room on the disk. Each is named once with a remedy, and what can be served is served.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.llm_served import write_language_model
from support.newcomer import console_pages, modelyard, readable, said_everywhere
from support.server import running, write_identity

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("http_port", "REST"),
        pytest.param("grpc_port", "gRPC", marks=pytest.mark.slow),
        pytest.param("metrics_port", "metrics", marks=pytest.mark.slow),
    ],
)
def test_a_port_in_use_is_named_with_the_flag_to_change(
    flag: str, name: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = taken.getsockname()[1]
        server = stack.enter_context(running(tmp_path, wait=False, **{flag: port}))
        assert server.wait_exit() == 1
        (line,) = [one for one in server.log().splitlines() if " ERROR " in one]
        assert "Traceback" not in server.log()
    assert f"cannot listen for {name} on 127.0.0.1" in line
    assert str(port) in line
    assert f"--{flag.replace('_', '-')}" in line
    readable(line)


@pytest.mark.slow
def test_a_second_server_on_a_state_folder_is_told_of_the_first_and_of_the_flag(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with running(tmp_path, wait=False, state_dir=state) as first:
        first.wait_for(lambda: "REST " in first.log(), "the first one's addresses")
        with running(tmp_path, wait=False, state_dir=state) as second:
            assert second.wait_exit() == 1
            (line,) = [one for one in second.log().splitlines() if " ERROR " in one]
        assert f"is in use by another server (pid {first.process.pid})" in line
        assert f"REST 127.0.0.1:{first.http_port}" in line
        assert "--state-dir" in line
        readable(line)


def test_without_git_a_repository_for_pushes_says_what_to_install(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(
        tmp_path, wait=False, allow_admin=True, state_dir=state, environment={"PATH": "/nowhere"}
    ) as server:
        server.wait_for(lambda: "admin  " in server.log(), "the control API")
        ran = modelyard("repo", "create", "demo", "--state-dir", str(state))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "there is no 'git' on the PATH; install git" in ran.stderr


def test_a_full_disk_is_named_once_and_the_log_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, log_file="/dev/full") as server:
        said = server.log()
    assert said.count("'/dev/full' cannot be written (No space left on device)") == 1
    assert "its lines come here until it can" in said


@pytest.fixture
def python_without_torch(tmp_path: Path) -> Path:
    """An interpreter that finds every installed package but torch."""
    base = Path(os.path.realpath(sys.executable))
    lib = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")
    venv = tmp_path / "venv"
    (venv / lib).mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(base)
    (venv / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
    )
    for entry in (Path(sys.prefix) / lib).iterdir():
        if not entry.name.startswith("torch"):
            (venv / lib / entry.name).symlink_to(entry)
    return venv / "bin" / "python"


def code(root: Path, model: str, text: str) -> None:
    (root / model / "1").mkdir(parents=True)
    (root / model / "1" / "model.py").write_text(text)


def exported(root: Path, model: str) -> None:
    (root / model / "1").mkdir(parents=True)
    (root / model / "1" / "model.pt2").write_bytes(b"x")


def importing(root: Path, model: str) -> None:
    code(root, model, "import torch\n")


def large(root: Path, model: str) -> None:
    code(root, model, "class TritonPythonModel:\n    def execute(self, requests): ...\n")


TORCH = "torch==2.13.0"
WITHOUT_TORCH = {
    "exported": (exported, "'pytorch' needs the package 'torch', which is not installed", TORCH),
    "story": (write_language_model, "'llm' needs the package 'torch'", TORCH),
    "importing": (importing, "cannot be imported without the package 'torch'", TORCH),
}
WITHOUT_MEMORY = {"large": (large, "needs", "--memory-budget")}


@pytest.mark.parametrize(
    ("models", "settings"),
    [
        pytest.param(WITHOUT_TORCH, {}, id="torch", marks=pytest.mark.slow),
        pytest.param(WITHOUT_MEMORY, {"memory_budget": "cpu=16MiB"}, id="memory"),
    ],
)
def test_what_a_model_lacks_is_on_the_log_in_the_index_and_in_the_console(
    models: dict[str, tuple[Callable[[Path, str], object], str, str]],
    settings: dict[str, object],
    tmp_path: Path,
    python_without_torch: Path,
) -> None:
    repository = tmp_path / "models"
    repository.mkdir()
    for name, (make, _, _) in models.items():
        make(repository, name)
    more = {"allow_admin": True, "state_dir": tmp_path / "state", **settings}
    python = python_without_torch if models is WITHOUT_TORCH else None
    with running(repository, wait=False, python=python, **more) as server:
        server.wait_for(lambda: "admin  " in server.log(), "the control API")
        pages = console_pages(server, tmp_path / "state")
        for name, (_, reason, remedy) in models.items():
            server.wait_for(lambda name=name: f"{name} 1: FAILED" in server.log(), "the reason")
            server.wait_for(lambda name=name, words=remedy: words in pages(name), "the page")
            said_everywhere(server, pages, name, reason, remedy)


@pytest.mark.slow
def test_without_a_compiler_a_language_model_is_served_and_says_what_to_install(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    write_language_model(tmp_path / "models", "story")
    lacking = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with running(tmp_path / "models", environment=lacking) as server:
        lines = [one for one in server.log().splitlines() if "g++" in one]
    (line,) = lines
    assert " WARNING " in line
    assert "computes in plain torch, which is slower" in line
    assert "there is no g++ on PATH; install it (apt: g++)" in line
    readable(line)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small filesystem to fill")
@pytest.mark.slow
def test_a_state_folder_on_a_full_disk_is_named_once_and_models_are_served(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no filesystem can be mounted here")
    repository = tmp_path / "models"
    write_identity(repository, "echo")
    said = "is full: nothing was changed; free some space and try again"
    try:
        (disk / "filler").write_bytes(b"x" * 8192)
        with running(repository, allow_admin=True, state_dir=disk / "state") as server:
            server.wait_for(lambda: said in server.log(), "the full disk to be named")
            (line,) = [one for one in server.log().splitlines() if " ERROR " in one]
            assert "the disk of the database sqlite:///" in line
            readable(line)
            assert [row["state"] for row in server.index()] == ["READY"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
