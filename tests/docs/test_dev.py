"""./dev: its set-up, as far as it can be seen without the network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.write_settings import ROOT
from support import longest_first

TOOLS = ("bash", "cat", "cksum", "dirname", "env", "grep", "readlink", "uname")


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


def fake_python(checkout: Path, text: str = "") -> Path:
    """Instead of .venv's: notes its arguments in the file returned, then does `text`."""
    log = checkout / "log"
    program(checkout / ".venv" / "bin" / "python", f'echo "$@" >>{log}\n{text}')
    program(checkout / "bin" / "uname", "echo Linux")
    return log


def test_finished_set_up_is_not_done_again_and_an_unfinished_one_is(checkout: Path) -> None:
    log = fake_python(checkout, f"[ ! -e {checkout}/fail ]")
    (checkout / "fail").touch()
    assert dev(checkout, "setup").returncode != 0
    (checkout / "fail").unlink()
    assert dev(checkout, "setup").returncode == 0
    installs = log.read_text()
    assert "-c constraints.txt -e .[cpu,torch,llm,examples]\n" in installs
    assert "-c constraints.txt -e .[cpu,torch,llm,examples,dev]\n" in installs
    assert dev(checkout, "setup").returncode == 0
    assert log.read_text() == installs


def test_serving_needs_no_tools_and_they_are_added_when_they_are_needed(checkout: Path) -> None:
    log = fake_python(checkout)
    program(checkout / ".venv" / "bin" / "modelyard", f'echo "modelyard $@" >>{log}')
    assert dev(checkout, "serve", "--http-port=1").returncode == 0
    served = log.read_text()
    assert "examples]\n" in served
    assert "dev]" not in served
    assert served.endswith("-m examples.build --into models\nmodelyard serve --http-port=1\n")
    assert dev(checkout, "setup").returncode == 0
    added = log.read_text().removeprefix(served)
    assert "examples,dev]\n" in added
    assert "torch==" not in added


def test_nvidia_driver_brings_the_gpu_packages(checkout: Path) -> None:
    log = fake_python(checkout)
    program(checkout / "bin" / "nvidia-smi", "exit 0")
    assert dev(checkout, "setup").returncode == 0
    assert ".[gpu,torch,llm,examples,dev]" in log.read_text()
    assert "torch==2.13.0\n" in log.read_text()
    assert "+cpu" not in log.read_text()


def test_torch_without_a_driver_is_a_cpu_build_of_the_sources_that_pip_has(checkout: Path) -> None:
    log = fake_python(checkout)
    assert dev(checkout, "setup").returncode == 0
    asked = [line for line in log.read_text().splitlines() if "torch==" in line]
    assert len(asked) == 1
    assert asked[0].endswith(" torch==2.13.0+cpu")


def test_torch_without_a_driver_comes_from_the_cpu_index_if_pip_has_no_source(
    checkout: Path,
) -> None:
    log = fake_python(checkout, 'case "$*" in *+cpu) exit 1 ;; esac')
    assert dev(checkout, "setup").returncode == 0
    asked = [line for line in log.read_text().splitlines() if "torch==" in line]
    index = "https://download.pytorch.org/whl/cpu"
    assert asked[1].endswith(f" torch==2.13.0+cpu --extra-index-url {index}")


def test_torch_index_is_passed_on(checkout: Path) -> None:
    log = fake_python(checkout)
    command = ["env", "DEV_TORCH_INDEX=https://example.org/cpu", str(checkout / "dev"), "setup"]
    subprocess.run(command, env={"PATH": str(checkout / "bin")}, check=True, timeout=60)
    assert "torch==2.13.0 --extra-index-url https://example.org/cpu" in log.read_text()
    assert "+cpu" not in log.read_text()


@pytest.mark.parametrize(("configured", "status"), [("", 0), ("global.index-url='x'", 0), ("", 1)])
def test_uv_installs_where_pip_has_no_sources_of_its_own_and_pip_where_uv_fails(
    checkout: Path, configured: str, status: int
) -> None:
    log = fake_python(checkout, f'case "$*" in *"config list") echo "{configured}" ;; esac')
    program(checkout / "bin" / "uv", f'echo "uv $@" >>{log}\nexit {status}')
    assert dev(checkout, "setup").returncode == 0
    asked = [line for line in log.read_text().splitlines() if "examples]" in line]
    by_uv = [line.startswith("uv pip install") for line in asked]
    assert by_uv == ([False] if configured else [True] if status == 0 else [True, False])
    assert all("-c constraints.txt -e .[cpu,torch,llm,examples]" in line for line in asked)


def test_unknown_command_is_refused() -> None:
    ran = subprocess.run([ROOT / "dev", "deploy"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr == "dev: there is no command 'deploy'; see ./dev help\n"


def test_continuous_integration_runs_dev_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    calls = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert calls == ["./dev lint", "./dev test --all"]


def test_files_of_tests_that_took_longest_come_first(tmp_path: Path) -> None:
    for name in ("test_a", "test_b", "test_c"):
        (tmp_path / f"{name}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    seconds = tmp_path / ".pytest_cache/v" / longest_first.SECONDS
    seconds.parent.mkdir(parents=True)
    seconds.write_text(json.dumps({"test_c.py::test_two": 9.0, "test_b.py::test_one": 2.0}))
    command = (
        f"-m pytest -c /dev/null -q --collect-only -p support.longest_first --rootdir {tmp_path}"
    )
    done = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path), str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTEST_ADDOPTS": ""},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    files = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    assert [name[-9:] for name in files] == [
        "test_c.py", "test_c.py", "test_b.py", "test_b.py", "test_a.py", "test_a.py"
    ]  # fmt: skip


def test_files_that_are_named_as_long_exist() -> None:
    """They come first where no seconds are recorded, so that none of them is left for the end."""
    assert [one for one in longest_first.LONG_FILES if not (ROOT / one).is_file()] == []


@pytest.mark.parametrize(("environment", "status"), [({"CI": "true"}, 10), ({}, 0)])
def test_files_that_tests_leave_in_the_checkout_are_named_and_fail_under_ci(
    environment: dict[str, str], status: int, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=60)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    (tmp_path / "test_a.py").write_text("def test_a(): open('left.data', 'x')\n")
    command = f"-m pytest -c /dev/null -q -p support.clean_checkout --rootdir {tmp_path}"
    outside = {name: text for name, text in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path)],
        cwd=tmp_path, env={**outside, "PYTHONPATH": str(ROOT / "tests"), **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status
    assert done.stdout.splitlines()[-2] == "left.data"


def test_lint_refuses_tracked_files_above_a_mebibyte(checkout: Path) -> None:
    for tool in ("find", "git", "sh", "xargs"):
        (checkout / "bin" / tool).symlink_to(str(shutil.which(tool)))
    fake_python(checkout)
    program(checkout / ".venv" / "bin" / "lint-imports", "true")
    assert dev(checkout, "lint").returncode == 0, "outside of a git checkout nothing is tracked"
    subprocess.run(["git", "init", "-q", checkout], check=True, timeout=60)
    (checkout / "1.data").write_bytes(bytes(2**20))
    (checkout / "2.data").write_bytes(bytes(2**20 + 1))
    subprocess.run(["git", "add", "1.data"], cwd=checkout, check=True, timeout=60)
    assert dev(checkout, "lint").returncode == 0
    subprocess.run(["git", "add", "2.data"], cwd=checkout, check=True, timeout=60)
    refused = dev(checkout, "lint")
    assert refused.returncode == 2
    assert refused.stderr.endswith("more than 1 MiB; take them out of git: 2.data\n")


def test_the_site_is_built_by_tools_that_are_installed_when_it_is_asked_for(checkout: Path) -> None:
    log = fake_python(checkout)
    program(checkout / ".venv" / "bin" / "mkdocs", f'echo "mkdocs $@" >>{log}')
    assert dev(checkout, "docs", "build").returncode == 0
    done = log.read_text()
    assert "-c constraints.txt -e .[cpu,torch,llm,examples,docs]\n" in done
    assert "dev]" not in done
    assert done.endswith("mkdocs build --quiet --strict\n")
    assert dev(checkout, "docs").returncode == 0
    assert log.read_text() == f"{done}mkdocs serve --quiet --dev-addr 127.0.0.1:8100\n"
    refused = dev(checkout, "docs", "publish")
    assert refused.returncode == 2
    assert "does not know 'publish'" in refused.stderr
