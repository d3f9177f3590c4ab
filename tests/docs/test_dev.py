"""./dev: its set-up, as far as it can be seen without the network."""

import shutil
import subprocess
from pathlib import Path

import pytest

from docs.write_settings import ROOT

TOOLS = ("bash", "cat", "cksum", "dirname", "env", "readlink")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with ./dev and what it reads, and `bin` with no Python in it."""
    for name in ("dev", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def dev(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """./dev called from another folder, with nothing on PATH but `checkout/bin`."""
    command = [str(checkout / "dev"), *arguments]
    environment = {"PATH": str(checkout / "bin")}
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=60
    )


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def test_without_python_the_set_up_says_what_it_needs(checkout: Path) -> None:
    ran = dev(checkout, "setup")
    assert ran.returncode == 2
    assert "needs Python 3.11 or newer" in ran.stderr


def test_older_python_is_passed_over(checkout: Path) -> None:
    program(checkout / "bin" / "python3", "exit 1")
    assert "needs Python 3.11 or newer" in dev(checkout, "setup").stderr


def test_finished_set_up_is_not_done_again_and_an_unfinished_one_is(checkout: Path) -> None:
    log = checkout / "log"
    program(checkout / ".venv" / "bin" / "python", f'echo "$@" >>{log}\n[ ! -e {checkout}/fail ]')
    (checkout / "fail").touch()
    assert dev(checkout, "setup").returncode != 0
    (checkout / "fail").unlink()
    assert dev(checkout, "setup").returncode == 0
    installs = log.read_text()
    assert "torch==2.13.0" in installs
    assert "-c constraints.txt -e .[cpu,examples,dev]" in installs
    assert dev(checkout, "setup").returncode == 0
    assert log.read_text() == installs


def test_nvidia_driver_brings_the_gpu_packages(checkout: Path) -> None:
    log = checkout / "log"
    program(checkout / ".venv" / "bin" / "python", f'echo "$@" >>{log}')
    program(checkout / "bin" / "nvidia-smi", "exit 0")
    assert dev(checkout, "setup").returncode == 0
    assert ".[gpu,examples,dev]" in log.read_text()


def test_torch_index_is_passed_on(checkout: Path) -> None:
    log = checkout / "log"
    program(checkout / ".venv" / "bin" / "python", f'echo "$@" >>{log}')
    command = ["env", "DEV_TORCH_INDEX=https://example.org/cpu", str(checkout / "dev"), "setup"]
    subprocess.run(command, env={"PATH": str(checkout / "bin")}, check=True, timeout=60)
    assert "torch==2.13.0 --extra-index-url https://example.org/cpu" in log.read_text()


def test_unknown_command_is_refused() -> None:
    ran = subprocess.run([ROOT / "dev", "deploy"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr == "dev: there is no command 'deploy'; see ./dev help\n"


def test_continuous_integration_runs_dev_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    calls = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert calls == ["./dev lint", "./dev test --all"]
