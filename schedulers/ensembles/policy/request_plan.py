"""The part of an ensemble that one request needs: pruned by the outputs that it asks for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schedulers.ensembles.policy.compile import CompiledEnsemble, CompiledStep
from schedulers.ensembles.policy.static_run import StaticPlan, static_plan

MOST_AT_A_TIME = 32
"""Elements of a list that a mapped step works on at a time, where the config sets no bound."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestPlan:
    """The steps that a request runs, and who waits for which tensor. Equal to itself alone.

    `readers`: tensor → steps whose inputs or condition it is; `producers` → steps that write it.
    `outputs`: what is answered. `level`: of the answer, see `CompiledStep.level`. `asked`: the
    outputs of each step that anybody reads, none for all of them. `limits`: how many calls of a
    step, by its number, may run at a time; no entry for any number. `static`: the same where every
    step runs exactly once, None where not.
    """

    steps: tuple[CompiledStep, ...]
    by_number: Mapping[int, CompiledStep]
    readers: Mapping[str, tuple[CompiledStep, ...]]
    producers: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    level: int
    asked: Mapping[int, tuple[str, ...]]
    callees: tuple[tuple[str, str], ...]
    batched: bool
    limits: Mapping[int, int]
    static: StaticPlan | None = None


def plan_for(ensemble: CompiledEnsemble, requested: Iterable[str]) -> RequestPlan:
    """`requested`: names of outputs, none for all."""
    graph = ensemble.graph
    outputs = tuple(dict.fromkeys(requested)) or graph.outputs
    wanted, steps = set(outputs), set[int]()
    pending = list(outputs)
    producers = graph.producers()
    while pending:
        for step in producers.get(pending.pop(), ()):
            if step.number not in steps:
                steps.add(step.number)
                pending += [tensor for tensor in step.needs() if tensor not in wanted]
                wanted.update(step.needs())
    chosen = tuple(one for one in ensemble.steps if one.step.number in steps)
    readers: dict[str, list[CompiledStep]] = {}
    for one in chosen:
        for tensor in one.step.needs():
            readers.setdefault(tensor, []).append(one)
    limits = _limits(chosen, graph.max_inflight)
    asked = {one.step.number: _asked(one, wanted) for one in chosen}
    made = [tensor for tensor, by in producers.items() if any(one.number in steps for one in by)]
    return RequestPlan(
        chosen,
        {one.step.number: one for one in chosen},
        {tensor: tuple(each) for tensor, each in readers.items()},
        {
            tensor: tuple(one.number for one in each if one.number in steps)
            for tensor, each in producers.items()
        },
        outputs,
        _deepest(ensemble, outputs),
        asked,
        tuple(dict.fromkeys((one.step.model, one.step.version) for one in chosen)),
        graph.max_batch > 0,
        limits,
        None if limits else static_plan(chosen, made, outputs, asked),
    )


def _limits(steps: Iterable[CompiledStep], most: int) -> dict[int, int]:
    found = {}
    for one in steps:
        if most or one.step.mapped:
            found[one.step.number] = most or MOST_AT_A_TIME
    return found


def _asked(one: CompiledStep, wanted: set[str]) -> tuple[str, ...]:
    asked = tuple(given for given, tensor in one.step.outputs.items() if tensor in wanted)
    return () if one.maps_all and len(asked) == len(one.step.outputs) else asked


def _deepest(ensemble: CompiledEnsemble, outputs: Iterable[str]) -> int:
    """The level of the answer: of its outputs' levels, the one that is behind all others."""
    levels = {ensemble.tensor_level.get(name, -1) for name in outputs}

    def depth(level: int) -> int:
        count = 0
        while level >= 0:
            level, count = ensemble.steps[level].level, count + 1
        return count

    return max(levels, key=depth, default=-1)
