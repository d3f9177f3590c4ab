"""What is not Python reaches those who install a wheel, too."""

import subprocess
import tomllib
from pathlib import Path

from docs.write_settings import ROOT

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_file_of_a_package_is_packed() -> None:
    folders = [f"{found.removesuffix('*')}/" for found in SETUPTOOLS["packages"]["find"]["include"]]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = {path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()}
    assert not {path for path in files if path.suffix != ".py"} - packed_data()


def packed_data() -> set[Path]:
    """What `package-data` names; patterns of "*" hold for every package."""
    packed = set(ROOT.glob("*/**/py.typed"))
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT / package.replace(".", "/")
        packed |= {path for pattern in patterns for path in folder.glob(pattern)}
    return packed
