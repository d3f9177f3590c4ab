"""Fetch what the console carries of others: `python -m admin_ui.vendor` refreshes static/vendor.

Each package comes by npm from the registry at a pinned version and is held against its SHA-256;
browsers never ask anybody but us.
"""

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "static" / "vendor"
_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Package:
    """`files`: path in the package → name in static/vendor."""

    name: str
    version: str
    sha256: str
    files: Mapping[str, str]


PACKAGES = (
    Package(
        "htmx.org",
        "4.0.1",
        "5fba65616ca148a86d377e9771bcada7f35faee3558651feb929eea425e13b3c",
        {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE.txt"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {
            "dist/uPlot.iife.min.js": "uplot.min.js",
            "dist/uPlot.min.css": "uplot.min.css",
            "LICENSE": "uplot.LICENSE.txt",
        },
    ),
)

FOR_TESTS = (
    Package(
        "axe-core",
        "4.14.1",
        "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
        {"axe.min.js": "axe.min.js", "LICENSE": "axe.LICENSE.txt"},
    ),
)


class NotVendored(Exception):
    """A package could not be fetched, or is not the one that was pinned."""


def main() -> int:
    """Refresh static/vendor; with a folder named, put what only tests need there."""
    try:
        if len(sys.argv) > 1:
            fetch(FOR_TESTS, Path(sys.argv[1]))
        else:
            fetch(PACKAGES, TARGET)
    except NotVendored as error:
        sys.stderr.write(f"vendor: {error}\n")
        return 1
    return 0


def fetch(packages: tuple[Package, ...], target: Path) -> None:
    """Raises NotVendored; nothing of a package is replaced then."""
    target.mkdir(parents=True, exist_ok=True)
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in _contents(package, Path(folder)).items():
                (target / name).write_bytes(content)


def _contents(package: Package, folder: Path) -> dict[str, bytes]:
    archive = _packed(package, folder)
    found = sha256(archive.read_bytes()).hexdigest()
    if found != package.sha256:
        raise NotVendored(
            f"{package.name} {package.version} has sha256 {found}, not {package.sha256}; "
            "look why before you pin another"
        )
    with tarfile.open(archive) as packed:
        return {name: _member(packed, path) for path, name in package.files.items()}


def _packed(package: Package, folder: Path) -> Path:
    wanted = f"{package.name}@{package.version}"
    try:
        subprocess.run(
            ["npm", "pack", "--silent", wanted],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise NotVendored("npm is not there; only a refresh needs it: install Node.js") from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise NotVendored(f"npm could not fetch {wanted}: {error}") from error
    return next(folder.glob("*.tgz"))


def _member(packed: tarfile.TarFile, path: str) -> bytes:
    file = packed.extractfile(f"package/{path}")
    if file is None:
        raise NotVendored(f"{path} is no file of the package")
    return file.read()


if __name__ == "__main__":
    sys.exit(main())
