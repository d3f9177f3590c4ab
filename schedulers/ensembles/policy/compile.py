"""Hold an ensemble's graph against the models of its steps, and make of both what requests follow.

Source of the rules and texts: Triton's `ensemble_utils.cc`. Pure.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from repository.config.ensemble_graph import EnsembleGraph, EnsembleStep
from repository.config.ensemble_rules import FIT_CODE
from schedulers.callee_signature import CalleeSignature, CalleeTensor


class TensorShape(NamedTuple):
    """What is known of a tensor, and from whom."""

    datatype: str
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    of: str


class CompiledStep(NamedTuple):
    """A step beside its model. `level`: the step whose responses it runs for one by one, -1 for the
    request itself. `item_batched`: of a mapped one, whether each element goes as a batch of one.
    `optional`: inputs that a request of the ensemble may leave out. `maps_all`: the ensemble has a
    tensor for each output of the model."""

    step: EnsembleStep
    decoupled: bool
    level: int
    item_batched: bool
    optional: frozenset[str] = frozenset()
    maps_all: bool = False


class CompiledEnsemble(NamedTuple):
    """What requests follow. `tensor_level`: of each tensor that a step writes, the level of its
    branch. `labels`: of outputs, from the models that make them."""

    graph: EnsembleGraph
    steps: tuple[CompiledStep, ...]
    tensor_level: Mapping[str, int]
    labels: Mapping[str, tuple[str, ...]]
    decoupled: bool


class Misfit(NamedTuple):
    """A complaint: which field of the config it is about, and its code."""

    path: str
    code: str
    message: str


Signatures = Mapping[tuple[str, str], Sequence[CalleeSignature]]
"""Of each callee: of a model one, of a route one for each arm."""


def compile_ensemble(
    graph: EnsembleGraph, own: CalleeSignature, callees: Signatures
) -> CompiledEnsemble | list[Misfit]:
    """`own`: the ensemble's; its `decoupled` is not looked at, but follows from the steps."""
    check = _Check(graph, own, callees)
    for step in graph.steps:
        for signature in callees[step.model, step.version]:
            check.step(step, signature)
    levels = _levels(graph, callees, check.misfits)
    steps = tuple(_compiled(step, callees, levels) for step in graph.steps)
    tensor_level = _tensor_levels(steps)
    outputs = {tensor_level.get(name, -1) for name in graph.outputs}
    check.answers(steps, outputs)
    if check.misfits:
        return check.misfits
    labels = _labels(graph, callees)
    return CompiledEnsemble(graph, steps, tensor_level, labels, max(outputs, default=-1) >= 0)


class _Check:
    """The complaints so far, and what is known of each tensor."""

    def __init__(self, graph: EnsembleGraph, own: CalleeSignature, callees: Signatures) -> None:
        self._graph = graph
        self._own = own
        self.misfits: list[Misfit] = []
        whose = {**own.inputs, **own.outputs}
        self._tensors = {
            name: TensorShape(one.datatype, one.dims, one.full_dims, graph.name)
            for name, one in whose.items()
        }

    def _complain(self, path: str, text: str) -> None:
        self.misfits.append(Misfit(path, FIT_CODE, text))

    def step(self, step: EnsembleStep, callee: CalleeSignature) -> None:
        path, name = f"ensemble_scheduling.step[{step.number}]", self._graph.name
        if callee.max_batch and callee.max_batch < self._own.max_batch:
            self._complain(
                f"{path}.model_name",
                f"ensemble {name} allows maximum batch size {self._own.max_batch}, but it contains "
                f"model {callee.model} which only allows maximum batch size to be "
                f"{callee.max_batch}",
            )
        for given, tensor in step.inputs.items():
            if given not in callee.inputs:
                self._complain(
                    f"{path}.input_map",
                    f"in ensemble {name}, ensemble tensor {tensor} is mapping to non-existing "
                    f"input {given} in model {callee.model}; it has {_names(callee.inputs)}",
                )
        for given, one in callee.inputs.items():
            if given not in step.inputs and not one.optional:
                self._complain(
                    f"{path}.input_map",
                    f"in ensemble {name}, input {given} in model {callee.model} is not mapped to "
                    "any ensemble tensors",
                )
        for given, tensor in step.outputs.items():
            if given not in callee.outputs:
                self._complain(
                    f"{path}.output_map",
                    f"in ensemble {name}, ensemble tensor {tensor} is mapped from non-existing "
                    f"output {given} in model {callee.model}; it has {_names(callee.outputs)}",
                )
        self._shapes(step, callee, path)

    def answers(self, steps: Sequence[CompiledStep], levels: Iterable[int]) -> None:
        """Whether the outputs' levels make one chain, and each tensor is written on one level."""
        chain = sorted(set(levels) - {-1}, key=lambda level: len(_above(steps, level)))
        if any(a not in _above(steps, b) for a, b in itertools.pairwise(chain)):
            models = " and ".join(f"'{steps[level].step.model}'" for level in chain)
            self._complain(
                "output",
                f"in ensemble {self._graph.name}, the outputs originate from different decoupled "
                f"models, {models}: nothing says which of their responses belong together",
            )
        written: dict[str, int] = {}
        for one in steps:
            level = one.step.number if one.decoupled else one.level
            for tensor in one.step.outputs.values():
                if written.setdefault(tensor, level) != level:
                    self._complain(
                        f"ensemble_scheduling.step[{one.step.number}].output_map",
                        f"in ensemble {self._graph.name}, ensemble tensor {tensor} is written "
                        "once by one step and for each response of a decoupled model by another",
                    )

    def _shapes(self, step: EnsembleStep, callee: CalleeSignature, path: str) -> None:
        for given, tensor in step.inputs.items():
            if given in callee.inputs:
                lists = tensor == step.mapped
                shape = _shape(callee.inputs[given], callee, step, lists)
                self._agree(tensor, shape, f"{path}.input_map")
        for given, tensor in step.outputs.items():
            if given in callee.outputs:
                shape = _shape(callee.outputs[given], callee, step, bool(step.mapped))
                self._agree(tensor, shape, f"{path}.output_map")
        if step.condition is not None:
            self._condition(step)

    def _agree(self, tensor: str, shape: TensorShape, path: str) -> None:
        known = self._tensors.setdefault(tensor, shape)
        about = f"in ensemble {self._graph.name}, ensemble tensor {tensor}: inconsistent"
        if known.datatype != shape.datatype:
            self._complain(
                path,
                f"{about} data type: {_config_type(known.datatype)} is inferred from model "
                f"{known.of} while {_config_type(shape.datatype)} is inferred from model "
                f"{shape.of}",
            )
        elif not _same(known.dims, shape.dims) and not _same(known.full_dims, shape.full_dims):
            self._complain(
                path,
                f"{about} shape: {_brackets(known.full_dims)} is inferred from model {known.of} "
                f"while {_brackets(shape.full_dims)} is inferred from model {shape.of}",
            )

    def _condition(self, step: EnsembleStep) -> None:
        condition = step.condition
        shape = self._tensors.get(condition.tensor) if condition else None
        if condition is None or shape is None:
            return
        dims = shape.full_dims[1 if self._graph.max_batch else 0 :]
        if any(dim != 1 for dim in dims) or shape.datatype in ("BYTES", "BOOL"):
            what = "one number for each row" if self._graph.max_batch else "one number"
            self._complain(
                "parameters",
                f"the condition '{condition}' of step {step.number} needs {what}, and "
                f"{condition.tensor} is {shape.datatype} {_brackets(shape.full_dims)}",
            )


def _shape(
    tensor: CalleeTensor, callee: CalleeSignature, step: EnsembleStep, lists: bool
) -> TensorShape:
    """As the ensemble sees it; `lists`: for each of whose elements the model is called."""
    of = callee.model
    if lists and not callee.max_batch:
        dims = (-1, *tensor.dims)
        return TensorShape(tensor.datatype, dims, dims, of)
    if lists:
        return TensorShape(tensor.datatype, tensor.full_dims, tensor.full_dims, of)
    return TensorShape(tensor.datatype, tensor.dims, tensor.full_dims, of)


def _levels(graph: EnsembleGraph, callees: Signatures, misfits: list[Misfit]) -> dict[int, int]:
    """For each step the decoupled step for whose responses it runs one by one, -1 for none.

    Steps may follow one decoupled step after another, but not two beside each other: nothing says
    which response of one goes with which of the other.
    """
    producers = graph.producers()
    above: dict[int, frozenset[int]] = {}

    def behind(step: EnsembleStep) -> frozenset[int]:
        """The decoupled steps before it."""
        if step.number not in above:
            above[step.number] = frozenset()
            found = frozenset[int]()
            for tensor in step.needs():
                for one in producers.get(tensor, ()):
                    found |= behind(one) | (
                        {one.number} if _is_decoupled(one, callees) else frozenset()
                    )
            above[step.number] = found
        return above[step.number]

    for step in graph.steps:
        chain = sorted(behind(step), key=lambda one: len(behind(graph.steps[one])))
        if any(a not in behind(graph.steps[b]) for a, b in itertools.pairwise(chain)):
            misfits.append(
                Misfit(
                    f"ensemble_scheduling.step[{step.number}]",
                    FIT_CODE,
                    f"in ensemble {graph.name}, step of model '{step.model}' receives inputs "
                    "originated from different decoupled models",
                )
            )
        above[step.number] = frozenset(chain)
        if step.mapped and _is_decoupled(step, callees):
            text = f"step {step.number} is mapped, and '{step.model}' is decoupled: it must answer"
            misfits.append(Misfit("parameters", FIT_CODE, f"{text} each element once"))
    depth = {number: len(one) for number, one in above.items()}
    return {n: max(one, key=lambda a: depth[a], default=-1) for n, one in above.items()}


def _above(steps: Sequence[CompiledStep], level: int) -> list[int]:
    """The levels that contain this one."""
    found = []
    while level >= 0 and (level := steps[level].level) >= 0:
        found.append(level)
    return found


def _is_decoupled(step: EnsembleStep, callees: Signatures) -> bool:
    return any(one.decoupled for one in callees[step.model, step.version])


def _compiled(step: EnsembleStep, callees: Signatures, levels: Mapping[int, int]) -> CompiledStep:
    signatures = callees[step.model, step.version]
    return CompiledStep(
        step,
        _is_decoupled(step, callees),
        levels[step.number],
        bool(step.mapped) and any(one.max_batch for one in signatures),
        frozenset(
            given
            for given in step.inputs
            if all(given in one.inputs and one.inputs[given].optional for one in signatures)
        ),
        all(step.outputs.keys() >= one.outputs.keys() for one in signatures),
    )


def _tensor_levels(steps: Iterable[CompiledStep]) -> dict[str, int]:
    return {
        tensor: one.step.number if one.decoupled else one.level
        for one in steps
        for tensor in one.step.outputs.values()
    }


def _labels(graph: EnsembleGraph, callees: Signatures) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for step in graph.steps:
        (signature, *_) = callees[step.model, step.version]
        for given, tensor in step.outputs.items():
            if tensor in graph.outputs and signature.outputs[given].labels:
                found.setdefault(tensor, signature.outputs[given].labels)
    return found


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )


def _brackets(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def _config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _names(tensors: Mapping[str, object]) -> str:
    return ", ".join(tensors) or "none"


FindSignatures = Callable[[str, str], Sequence[CalleeSignature]]
"""Of a callee by model and version text, those that serve now."""
