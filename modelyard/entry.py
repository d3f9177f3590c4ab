"""What the commands `modelyard` and `tritonserver` run first: see that our packages are ours.

Their import names are common words. A folder `server/` on PYTHONPATH, or another distribution that
installs a package of the same name, would be imported in their place and fail oddly much later.
"""

import base64
import hashlib
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    *("server", "admin_ui", "schedulers", "jobs", "control", "backends", "repository"),
    "migrations",
)

USAGE = 2

_ROOT = Path(__file__).resolve().parents[1]
_REMEDY = "install Modelyard into an environment of its own (pipx, or python3 -m venv)"


def main() -> int:
    """The command `modelyard`; its exit status."""
    return _run("modelyard", "server.cli.main")


def tritonserver() -> int:
    """The command `tritonserver`; its exit status."""
    return _run("tritonserver", "server.cli.tritonserver")


def _run(command: str, module: str) -> int:
    problem = foreign_package(PACKAGES, _ROOT)
    if problem:
        return _refuse(command, problem)
    try:
        program = import_module(module)
    except (ImportError, AttributeError):
        problem = overwritten_package(PACKAGES)
        if problem:
            return _refuse(command, problem)
        raise
    return int(program.main())


def _refuse(command: str, problem: str) -> int:
    sys.stderr.write(f"{command}: {problem}\n")
    return USAGE


def foreign_package(packages: Iterable[str], root: Path) -> str:
    """A package that Python finds elsewhere than below `root`, in a sentence; "" if there is none.

    Nothing is imported.
    """
    for name in packages:
        spec = find_spec(name)
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if found is None:
            return f"Modelyard's package '{name}' is missing in {root}; {_REMEDY}"
        if found != root / name / "__init__.py":
            outer = found.parent if found.name == "__init__.py" else found
            return (
                f"the package '{name}' that Python finds is {outer}, not Modelyard's {root / name};"
                f" take {outer.parent} from PYTHONPATH, or {_REMEDY}"
            )
    return ""


def overwritten_package(packages: Iterable[str]) -> str:
    """A package of ours over which another distribution has installed its own, in a sentence; ""
    if there is none, and where nothing says what we installed."""
    from importlib import metadata

    try:
        files = metadata.distribution("modelyard").files or []
    except metadata.PackageNotFoundError:
        return ""
    paths = {f"{name}/__init__.py" for name in packages}
    for file in files:
        if str(file) in paths and file.hash is not None:
            path = Path(str(file.locate()))
            if not path.exists() or _digest(path) != file.hash.value:
                others = metadata.packages_distributions().get(path.parent.name, [])
                names = ", ".join(sorted(set(others) - {"modelyard"})) or "something else"
                return f"{path} is not Modelyard's: {names} has written over it; {_REMEDY}"
    return ""


def _digest(path: Path) -> str:
    """As pip's RECORD has it."""
    raw = hashlib.sha256(path.read_bytes()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
