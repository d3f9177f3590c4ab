"""The commands beside a foreign package that has the import name of one of ours."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from modelyard.entry import PACKAGES, foreign_package
from support.server import ROOT

INCLUDED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def modelyard(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    """The command with `path` first on PYTHONPATH."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "modelyard", *arguments],
        cwd="/",
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_package_of_the_wheel_is_looked_at() -> None:
    named = {one.removesuffix("*") for one in INCLUDED["find"]["include"]}
    assert named == {*PACKAGES, "modelyard"}
    assert foreign_package(PACKAGES, ROOT) == ""


@pytest.mark.parametrize("name", ["server", "jobs", "control", "migrations"])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_foreign_package_of_the_same_name_is_named(
    tmp_path: Path, name: str, as_file: bool
) -> None:
    foreign = tmp_path / (f"{name}.py" if as_file else name)
    if as_file:
        foreign.touch()
    else:
        foreign.mkdir()
        (foreign / "__init__.py").touch()
    ran = modelyard("serve", path=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"modelyard: the package '{name}' that Python finds is {foreign}, not Modelyard's "
        f"{ROOT / name}; take {tmp_path} from PYTHONPATH, or install Modelyard into an environment "
        "of its own (pipx, or python3 -m venv)\n"
    )


def test_a_mere_folder_of_the_same_name_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    assert modelyard("version", path=tmp_path).stdout.startswith("modelyard ")


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    problem = foreign_package(["nobody_has_this"], tmp_path)
    assert problem.startswith(f"Modelyard's package 'nobody_has_this' is missing in {tmp_path}; ")
