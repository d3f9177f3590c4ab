"""One call of a step of an ensemble, as policy and pump hand it to each other. Pure."""

from collections.abc import Mapping
from typing import Any

from repository.config.tensors import Array
from schedulers.ensembles.policy.compile import CompiledStep

NO_ANSWER = (
    "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"
)


class StepCall:
    """`branch`: of `EnsembleRun`, where its answer goes. `item`: of a mapped step, which element it
    is for, of those of `items`."""

    __slots__ = ("branch", "inputs", "item", "items", "step")

    def __init__(
        self,
        step: CompiledStep,
        inputs: dict[str, Array],
        branch: Any = None,
        items: "MappedItems | None" = None,
        item: int = 0,
    ) -> None:
        self.step = step
        self.inputs = inputs
        self.branch = branch
        self.items = items
        self.item = item


class MappedItems:
    """The answers of one mapped step so far."""

    __slots__ = ("left", "results")

    def __init__(self, count: int) -> None:
        self.left = count
        self.results: list[Mapping[str, Array]] = [{}] * count
