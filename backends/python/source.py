"""What of a python model's file can be found wrong without running it. Pure but for what it is
given to ask."""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

_CLASS = "TritonPythonModel"
_ALWAYS_THERE = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})


class SourceProblem(NamedTuple):
    """A sentence with its remedy, and where it points in the file; line 0 for the whole file."""

    line: int
    column: int
    message: str


def problems(name: str, source: bytes, is_there: Callable[[str], bool]) -> list[SourceProblem]:
    """Why the file cannot be a python model: its syntax, a missing class, imports that would fail.

    `is_there`: whether a top-level module can be imported, from the version's folder or what is
    installed. What a file imports under a condition, in a `try` or in a function is its own
    business, and so is everything once it changes `sys.path`.
    """
    try:
        tree = ast.parse(source, name)
    except SyntaxError as error:
        text = f"{name} is no valid Python: {error.msg}"
        return [SourceProblem(error.lineno or 0, error.offset or 0, text)]
    except (ValueError, RecursionError, MemoryError) as error:
        return [SourceProblem(0, 0, f"{name} is no valid Python: {error}")]
    return [*_missing_class(name, tree), *_failing_imports(tree, is_there)]


def _missing_class(name: str, tree: ast.Module) -> Iterator[SourceProblem]:
    model = next((one for one in tree.body if _is_class(one)), None)
    if isinstance(model, ast.ClassDef):
        if not model.bases and not any(_defines(one, "execute") for one in model.body):
            text = f"class {_CLASS} has no method execute; add execute(self, requests)"
            yield SourceProblem(model.lineno, model.col_offset + 1, text)
    elif not any(_may_bind(one) for one in ast.walk(tree)):
        text = f"{name} has no class {_CLASS}; a python model is a class of that name"
        yield SourceProblem(0, 0, text)


def _is_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == _CLASS


def _defines(node: ast.stmt, name: str) -> bool:
    """Any other statement than a method with another name may define it as well."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
    return isinstance(node, ast.If | ast.Try)


def _may_bind(node: ast.AST) -> bool:
    """Whether a statement may give the class's name to something: an assignment, an import."""
    if isinstance(node, ast.ImportFrom | ast.Import):
        return any((one.asname or one.name) in ("*", _CLASS) for one in node.names)
    if isinstance(node, ast.ClassDef):
        return node.name == _CLASS
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Store) and node.id == _CLASS
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("exec", "globals")


def _failing_imports(tree: ast.Module, is_there: Callable[[str], bool]) -> Iterator[SourceProblem]:
    if any(_is_search_path(one) for one in ast.walk(tree)):
        return
    found: set[str] = set()
    for node in tree.body:
        for module in _imported(node):
            root = module.partition(".")[0]
            if root not in _ALWAYS_THERE and root not in found and not is_there(root):
                found.add(root)
                text = (
                    f"imports {module}, and there is no module {root}; install it for the server's "
                    "Python, or put it beside the file"
                )
                yield SourceProblem(node.lineno, node.col_offset + 1, text)


def _is_search_path(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(one.name == "path" for one in node.names)
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []
