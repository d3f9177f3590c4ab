"""Rules of our code that no linter knows."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "modelyard",
    "server",
    "admin_ui",
    "schedulers",
    "jobs",
    "control",
    "backends",
    "repository",
)


def product_files() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


LONGEST_FILE = 400

OTHER_FOLDERS = ("tests", "benchmarks", "examples", "docs")
"""No product, but held to the same length."""

LONGER_FILES: dict[str, str] = {}
"""Path → why the file is longer."""


def test_files_have_at_most_400_lines() -> None:
    """A file is one idea: split it by ideas. An exception that is none any more goes as well."""
    other = (path for name in OTHER_FOLDERS for path in (ROOT / name).rglob("*.py"))
    files = [*product_files(), *other]
    longer = {str(path.relative_to(ROOT)) for path in files if _lines(path) > LONGEST_FILE}
    assert longer == set(LONGER_FILES)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


IMPURE = {"asyncio", "time", "threading", "random", "os", "socket", "subprocess"}


def test_modules_that_say_pure_import_no_clock_loop_or_io() -> None:
    """A module whose docstring says "Pure." is held to it. Modules named `policy`, and those in a
    folder of that name, are by the contracts in pyproject.toml, whatever they say."""
    pure = [path for path in product_files() if _says_pure(path)]
    assert len(pure) > 150
    found = {str(path.relative_to(ROOT)): _imported(path) & IMPURE for path in pure}
    assert {path: names for path, names in found.items() if names} == {}


def _says_pure(path: Path) -> bool:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.search(r"\bPure\b", text) is not None


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_nobody_assigns_into_the_data_plane_from_outside() -> None:
    """What it needs is handed to its constructor; what changes later has a method."""
    files = [*product_files(), *sorted((ROOT / "tests").rglob("*.py"))]
    assert [found for path in files for found in _assigned_into_data_plane(path)] == []


def _assigned_into_data_plane(path: Path) -> Iterator[str]:
    text = path.read_text()
    if "dataplane" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            node = ast.Attribute(node.args[0], "setattr", ast.Store(), lineno=node.lineno)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value)
            if any(part.strip("_") == "dataplane" for part in owner.split(".")):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_documents_name_files_that_exist() -> None:
    names = {path.name for path in files_of_ours()}
    assert [found for found in _files_in_documents() if found[1] not in names] == []


def files_of_ours() -> list[Path]:
    folders = (*PACKAGES, "docs", "tests", "examples", "benchmarks", "migrations")
    return [path for name in folders for path in (ROOT / name).rglob("*.py")]


THEIRS = frozenset({"model.py", "trace_summary.py"})
"""A user's, and one of Triton's tools."""


def _files_in_documents() -> Iterator[tuple[str, str]]:
    for document in sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]):
        for path in re.findall(r"`([\w./]+\.py)`", document.read_text()):
            if Path(path).name not in THEIRS:
                yield document.name, Path(path).name


def test_no_class_name_stands_for_two_things() -> None:
    """Two classes of one name in two modules; a leading underscore does not tell them apart."""
    where: defaultdict[str, set[str]] = defaultdict(set)
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].add(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
