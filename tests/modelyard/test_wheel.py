"""The wheel in an environment of its own, with the extra `cpu`: what a stranger installs and tries.

Packages come from the index that pip is configured with.
"""

import json
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from modelyard.entry import PACKAGES
from support.server import ROOT, free_ports

pytestmark = pytest.mark.slow

TORCH_LINE = "pip install torch==2.13.0"
NAMES = ("http", "grpc", "metrics", "admin")
READY, CONSOLE = "try, in another shell:", "first administrator (once, within a day): "


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has, without what an earlier build has left."""
    folder = tmp_path_factory.mktemp("sources")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", into, sources], check=True, timeout=300)
    return next(into.glob("modelyard-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and the extra `cpu`."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    pip = [folder / "bin" / "python", "-m", "pip", "--quiet", "install"]
    command = [*pip, "-c", ROOT / "constraints.txt", f"{wheel}[cpu]"]
    subprocess.run(command, check=True, timeout=500)
    return folder / "bin"


def tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def alone(folder: Path) -> dict[str, str]:
    """An environment that knows neither this checkout nor this user."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}


@contextmanager
def started(folder: Path, command: list[str | Path], sign: str) -> Iterator[dict[str, str]]:
    """A server that has printed `sign`; its addresses by name, and its output as "said"."""
    ports = dict(zip(NAMES, free_ports(4), strict=True))
    flags = [f"--{name}-port={port}" for name, port in ports.items()]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *flags], cwd=folder, env=alone(folder), stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + 120
        while sign not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        yield {**addresses, "said": log.read_text()}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


DOCS = ".data/data/share/modelyard/docs/"
BESIDE = "modelyard-"
"""How the folder begins whose files are installed beside the packages."""


def test_it_has_every_file_of_every_package(wheel: Path) -> None:
    wanted = {name for name in tracked() if name.split("/")[0] in (*PACKAGES, "modelyard")}
    packed = {name for name in names_in(wheel) if not name.startswith(BESIDE)}
    assert packed == {*wanted}


def test_it_has_the_docs_that_the_console_shows(wheel: Path) -> None:
    wanted = {name for name in tracked() if re.fullmatch(r"docs/(tutorials/)?[^/]+\.md", name)}
    packed = {name.partition("/share/modelyard/")[2] for name in names_in(wheel) if DOCS in name}
    assert packed == wanted


def names_in(wheel: Path) -> list[str]:
    return [one for one in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in one]


def test_the_demo_serves_and_its_calls_answer(installed: Path, tmp_path: Path) -> None:
    with started(tmp_path, [installed / "modelyard", "demo"], CONSOLE) as server:
        calls = server["said"].partition(READY)[2].splitlines()
        curl, caller = (next(one for one in calls if word in one) for word in ("curl", "call.py"))
        rest, grpc = (
            subprocess.run(
                ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60
            )
            for line in (curl, caller)
        )
    assert json.loads(rest.stdout)["outputs"][0]["data"][0].endswith(":2:two")
    assert grpc.stdout.endswith("version 2 of digits reads: 2\n"), grpc.stderr
    assert (tmp_path / "modelyard-demo" / ".modelyard" / "modelyard.db").exists()


def test_models_that_need_what_is_not_installed_say_how_to_install_it(
    installed: Path, tmp_path: Path
) -> None:
    for name, backend, file in (
        ("script", "pytorch", "model.pt"),
        ("own", "python", "model.py"),
        ("chat", "llm", "config.json"),
    ):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        tensors = "".join(
            f'{kind} {{ name: "X" data_type: TYPE_FP32 dims: 1 }}\n' for kind in ("input", "output")
        )
        config = f'name: "{name}"\nbackend: "{backend}"\n' + (tensors if backend != "llm" else "")
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
        (tmp_path / "models" / name / "1" / file).write_text("import torch\n")
    with started(tmp_path, [installed / "modelyard", "serve"], "metrics  http") as server:
        reasons = {line.split()[0]: line for line in server["said"].splitlines() if line}
    assert (
        "the backend 'pytorch' needs the package 'torch', which is not installed; "
        in (reasons["script"])
    )
    assert TORCH_LINE in reasons["script"]
    assert "'model.py' cannot be imported without the package 'torch'" in reasons["own"]
    assert TORCH_LINE in reasons["own"]
    assert "the backend 'llm' needs the package 'torch'" in reasons["chat"]
    assert "llguidance" in reasons["chat"]
    assert "This is a bug" not in server["said"]


def test_another_distribution_that_writes_over_a_package_is_named(
    installed: Path, tmp_path: Path
) -> None:
    command = [installed / "python", "-c", "import server; print(server.__file__)"]
    found = subprocess.run(
        command, cwd=tmp_path, env=alone(tmp_path), capture_output=True, text=True, check=True
    )
    path = Path(found.stdout.strip())
    kept = path.read_bytes()
    try:
        path.write_text('NAME = "another server"\n')
        ran = subprocess.run(
            [installed / "modelyard", "serve"],
            cwd=tmp_path,
            env=alone(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        path.write_bytes(kept)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"modelyard: {path} is not Modelyard's: ")
    assert ran.stderr.count("\n") == 1
