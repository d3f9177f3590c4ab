"""A recipe: the Python file of a user that says how a network is made, fed and judged.

docs/recipes.md describes its functions. Whatever it does wrong is refused with its file, line and
function, because whoever reads the refusal wrote it.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from control.jobs.messages import Task
from control.jobs.specs.training import TrainingSource
from jobs.tools.work import WorkRefused, refuse

Split = Literal["train", "held_out"]
Batch = tuple[tuple[Tensor, ...], Tensor | None]
"""Inputs of the network, rows first, and their targets, if they have some."""
Answer = Callable[..., Any]
"""What answers inputs with outputs: a network, or a session of onnxruntime."""

MOST_BATCHES = 1_000_000
"""Of one pass; an endless generator is refused rather than followed."""


class Recipe:
    """The functions of a recipe file, called with errors in words.

    Raises WorkRefused naming the file, and the line where there is one.
    """

    def __init__(self, task: Task, spec: TrainingSource) -> None:
        self._version = Path(task.source)
        self._data = Path(task.data) if task.data else self._version
        self.path = _find(task, spec)
        self._name = self.path.name
        self._module = self._load()

    def network(self) -> nn.Module:
        """The version's network with its weights."""
        return self._module_of("network")

    def student(self) -> nn.Module:
        """The network, not trained yet, that is to learn from the version."""
        return self._module_of("student")

    def batches(self, split: Split, seed: int) -> Iterator[Batch]:
        """One pass over a split. At least one batch comes, each of one row or more."""
        count = 0
        made = iter(self._call("batches", split, self._data, seed))
        while True:
            with self._words("batches"):
                item = next(made, None)
            if item is None:
                break
            count += 1
            if count > MOST_BATCHES:
                refuse(f"{self._name}: batches('{split}') gave {MOST_BATCHES} batches and more")
            yield self._batch(item, split)
        if not count:
            refuse(f"{self._name}: batches('{split}') gave no batch")

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Of the recipe, or cross-entropy of the logits."""
        made = self._call("loss", outputs, targets, default=cross_entropy)
        if not isinstance(made, Tensor) or made.numel() != 1:
            refuse(f"{self._name}: loss must give one number as a tensor, not {_described(made)}")
        return made

    def accuracy(self, answer: Answer) -> float:
        """Held-out accuracy from 0 to 1, by `evaluate` of the recipe or the share of right classes.

        `answer` is in evaluation mode; no gradients are kept.
        """
        with torch.no_grad():
            if not hasattr(self._module, "evaluate"):
                return self._share(answer)
            found = self._call("evaluate", answer, self._data)
        try:
            share = float(found)
        except (TypeError, ValueError):
            share = -1.0
        if not 0 <= share <= 1:
            refuse(f"{self._name}: evaluate must give a share from 0 to 1, not {_described(found)}")
        return share

    def example(self) -> tuple[Tensor, ...]:
        """Inputs of the first held-out batch, which tell ranks and types."""
        return next(self.batches("held_out", 0))[0]

    def forward(self, network: Answer, inputs: tuple[Tensor, ...]) -> Any:
        """The network's outputs; what its code raises is told with its line in the recipe."""
        with self._words("forward of its network"):
            return network(*inputs)

    def _share(self, answer: Answer) -> float:
        right = total = 0
        for inputs, targets in self.batches("held_out", 0):
            outputs = self.forward(answer, inputs)
            self._check_classes(outputs, targets)
            assert targets is not None
            right += int((outputs.argmax(1) == targets).sum())
            total += len(targets)
        return right / total

    def _check_classes(self, outputs: Any, targets: Tensor | None) -> None:
        if targets is None:
            refuse(
                f"{self._name}: batches('held_out') gave inputs without targets, so that accuracy "
                "cannot be computed; give (inputs, targets), or write evaluate(answer, data)"
            )
        # Of one column, the largest is always the first.
        logits = isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1
        if not logits or targets.shape != outputs.shape[:1]:
            refuse(
                f"{self._name}: accuracy needs outputs [rows, classes] of two classes or more and "
                f"targets [rows], but the network gave {_described(outputs)} for targets "
                f"{_described(targets)}; write evaluate(answer, data) for anything else"
            )

    def _batch(self, item: Any, split: str) -> Batch:
        inputs, targets = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
        parts = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        tensors = all(isinstance(one, Tensor) and one.dim() and len(one) for one in parts)
        if not parts or not tensors or not (targets is None or isinstance(targets, Tensor)):
            refuse(
                f"{self._name}: batches('{split}') must give (inputs, targets) as tensors with "
                f"rows, not {_described(item)}"
            )
        return parts, targets

    def _module_of(self, name: str) -> nn.Module:
        made = self._call(name, self._version)
        if not isinstance(made, nn.Module):
            refuse(f"{self._name}: {name} must give a torch.nn.Module, not {_described(made)}")
        return made

    def _call(self, name: str, *given: Any, default: Callable[..., Any] | None = None) -> Any:
        function: Any = getattr(self._module, name, default)
        if function is None:
            refuse(f"{self._name} has no function '{name}'; docs/recipes.md says what it gives")
        if not callable(function):
            refuse(f"{self._name}: '{name}' is {_described(function)}, not a function")
        if function is not default:
            self._check_takes(name, function, given)
        with self._words(name):
            return function(*given)

    def _check_takes(self, name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        try:
            inspect.signature(function).bind(*given)
        except TypeError as error:
            line = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
            refuse(
                f"{self._name} line {line}: {name} does not take the {len(given)} arguments that "
                f"it is called with ({error}); see docs/recipes.md"
            )
        except ValueError:
            pass  # a built-in says nothing of its arguments

    def _load(self) -> ModuleType:
        sys.dont_write_bytecode = True  # the folder is read-only
        sys.path.insert(0, str(self.path.parent))
        spec = importlib.util.spec_from_file_location("recipe", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["recipe"] = module
        with self._words("the file itself"):
            spec.loader.exec_module(module)
        return module

    def _words(self, where: str) -> "_Words":
        return _Words(self.path, where)


class _Words:
    """A context in which the recipe runs: what it raises becomes a refusal with its line."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = path
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (WorkRefused, KeyboardInterrupt)):
            return
        if isinstance(error, MemoryError):
            return
        name, line = _place(error, self._path)
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        said = f"{type(error).__name__}: {text[:2000]}" if text else type(error).__name__
        at = f" line {line}" if line else ""
        raise WorkRefused(f"{name}{at}, in {self._where}: {said}") from error


def _place(error: BaseException, path: Path) -> tuple[str, int]:
    """File and line below the recipe's folder where the error arose."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename).name, error.lineno or 0
    folder = str(path.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(folder):
            return Path(frame.filename).name, frame.lineno or 0
    return path.name, 0


def _find(task: Task, spec: TrainingSource) -> Path:
    relative = Path(spec.recipe)
    if relative.is_absolute() or ".." in relative.parts:
        refuse(f"recipe is '{spec.recipe}'; it must be a path below the version's or data folder")
    folders = [Path(task.source)]
    if task.data and Path(task.data).is_dir():
        folders.append(Path(task.data))
    found = next((one for folder in folders if (one := folder / relative).is_file()), None)
    if found is None:
        there = sorted(one.name for one in folders[0].iterdir())[:10]
        refuse(
            f"there is no '{spec.recipe}' in the version's folder (it has {', '.join(there)})"
            f"{' or in the data folder' if len(folders) > 1 else ''}; docs/recipes.md shows one"
        )
    return found


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of " + ", ".join(_described(one) for one in value[:4])
    return f"{type(value).__name__} {value!r:.80}"
