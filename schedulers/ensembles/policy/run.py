"""One request on its way through an ensemble: what may start, and what has been answered. Pure.

`schedulers.ensembles.scheduler` starts the calls that `take` gives, and tells `answered` and
`ended` what became of them. A request begins with one branch, which holds its tensors. Each
response of a decoupled step makes a branch below, which knows the tensors above it; where a
condition holds for some rows and not for others, a branch is split by rows.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repository.config.tensors import Array, held_bytes
from schedulers.ensembles.policy.compile import CompiledStep
from schedulers.ensembles.policy.request_plan import RequestPlan
from schedulers.ensembles.policy.static_run import StaticRun
from schedulers.ensembles.policy.step_call import NO_ANSWER, MappedItems, StepCall
from schedulers.ensembles.policy.stream_hold import Backlog
from schedulers.errors import EnsembleFailed

MOST_ITEMS = 4096
"""Elements of a list that a step may be mapped over."""


class Branch:
    """Tensors that belong together. `rows`: which of the rows of `above` it has, None for all.
    `level`: the step whose response it is, -1 for the request. `halves`: what it was split into.
    `complete`: no further branch will come below. `size_bytes`: of the tensors of a response."""

    __slots__ = (
        "above",
        "below",
        "complete",
        "done",
        "halves",
        "level",
        "rows",
        "size_bytes",
        "skipped",
        "tensors",
    )

    def __init__(
        self, tensors: dict[str, Array], level: int, above: "Branch | None" = None
    ) -> None:
        self.tensors = tensors
        self.level = level
        self.above = above
        self.rows: Any = None
        self.halves: tuple[Branch, Branch] | None = None
        self.below: list[Branch] = []
        self.complete = False
        self.done: set[int] = set()
        self.skipped: set[int] = set()
        self.size_bytes = 0

    def add(self, tensors: Mapping[str, Array]) -> None:
        self.tensors.update(tensors)
        if self.level >= 0:
            self.size_bytes += sum(map(held_bytes, tensors.values()))

    def find(self, tensor: str) -> Array | None:
        """The tensor, here or above; with this branch's rows only."""
        found = self.tensors.get(tensor)
        if found is None and self.above is not None:
            found = self.above.find(tensor)
            if found is not None and self.rows is not None:
                found = self.tensors[tensor] = found[self.rows]
        return found

    def path_to(self, level: int) -> "list[Branch]":
        """This branch and those above it up to that of the level; none where it is not below."""
        if self.level == level:
            return [self]
        path = self.above.path_to(level) if self.above is not None else []
        return [self, *path] if path else []

    def is_skipped(self, number: int) -> bool:
        return number in self.skipped or (self.above is not None and self.above.is_skipped(number))


def run_of(plan: RequestPlan, inputs: Mapping[str, Array]) -> "EnsembleRun | StaticRun":
    """The cheaper one of those that can carry the plan out. An optional input that a step needs
    may be missing."""
    static = plan.static
    if static is not None and static.given.issubset(inputs):
        return StaticRun(static, plan.outputs, inputs)
    return EnsembleRun(plan, inputs)


class EnsembleRun:
    """One request's state. `inflight`: calls taken and not ended; `skips`: the number of each step
    that was left out, and for how many rows; who counts them clears it."""

    __slots__ = (
        "_counts",
        "_plan",
        "_ready",
        "_rows",
        "_units",
        "inflight",
        "root",
        "sent",
        "skips",
    )

    def __init__(self, plan: RequestPlan, inputs: Mapping[str, Array]) -> None:
        self._plan = plan
        self.root = Branch(dict(inputs), -1)
        self._ready: deque[StepCall] = deque()
        self._counts = dict.fromkeys(plan.limits, 0)
        self._units: deque[Branch] = deque([self.root] if plan.level == -1 else [])
        self.inflight = 0
        self.sent = 0
        self.skips: list[tuple[int, int]] = []
        self._rows = len(next(iter(inputs.values()), ())) if plan.batched else 1
        for one in plan.steps:
            if one.level == -1:
                self._look(self.root, one)

    def take(self) -> list[StepCall]:
        """The calls that may start now."""
        if not self._counts:
            calls = list(self._ready)
            self._ready.clear()
            self.inflight += len(calls)
            return calls
        calls, waiting, counts, limits = [], deque[StepCall](), self._counts, self._plan.limits
        for call in self._ready:
            number = call.step.step.number
            if number in limits and counts[number] >= limits[number]:
                waiting.append(call)
                continue
            if number in limits:
                counts[number] += 1
            calls.append(call)
        self._ready = waiting
        self.inflight += len(calls)
        return calls

    def waiting_behind(self, number: int) -> Backlog:
        """Calls that could start but for the limits, of steps that run for each response of this
        decoupled one."""
        calls, kept = 0, set[Branch]()
        for call in self._ready:
            path = call.branch.path_to(number)
            calls += bool(path)
            kept.update(path)
        return Backlog(calls, sum(branch.size_bytes for branch in kept))

    def answered(self, call: StepCall, outputs: Mapping[str, Array]) -> None:
        """One response of a call."""
        pairs = call.step.step.outputs
        if call.items is not None:
            items = call.items
            items.results[call.item] = outputs
            items.left -= 1
            if not items.left:
                self._gather(call, items)
            return
        made = {pairs[given]: array for given, array in outputs.items() if given in pairs}
        branch = call.branch
        if call.step.decoupled:
            branch = Branch({}, call.step.step.number, call.branch)
            call.branch.below.append(branch)
            if branch.level == self._plan.level:
                self._units.append(branch)
        branch.add(made)
        self._arrived(branch, made)

    def ended(self, call: StepCall) -> None:
        """The call's reply has ended well."""
        self.inflight -= 1
        if call.step.step.number in self._counts:
            self._counts[call.step.step.number] -= 1
        if call.step.decoupled:
            self._complete(call.branch)

    def responses(self) -> list[dict[str, Array]]:
        """The answers that are complete now, in their order."""
        found = []
        while self._units and (answer := self._answer(self._units[0])) is not None:
            self._drop(self._units.popleft())
            found.append(answer)
        self.sent += len(found)
        return found

    def asked(self, call: StepCall) -> tuple[str, ...]:
        """The outputs to ask the step's model for, none for all."""
        return self._plan.asked[call.step.step.number]

    @property
    def is_unary(self) -> bool:
        """Whether there is exactly one answer."""
        return self._plan.level == -1

    @property
    def finished(self) -> bool:
        """Whether nothing runs or may start any more."""
        return not self.inflight and not self._ready

    def missing(self) -> str:
        """Why it has finished without all answers; "" if it has them."""
        return NO_ANSWER if self._units else ""

    # what is kept

    def _complete(self, branch: Branch) -> None:
        """The decoupled step of a branch, of which every level has at most one, has ended."""
        branch.complete = True
        if not branch.below:
            self._drop(branch)

    def _drop(self, branch: Branch) -> None:
        """Forget a branch from which nothing follows any more, and those above likewise."""
        above = branch.above
        while above is not None:
            above.below.remove(branch)
            if above.below or not above.complete:
                return
            branch, above = above, above.above

    # what follows from what

    def _arrived(self, branch: Branch, tensors: Mapping[str, Array]) -> None:
        readers = self._plan.readers
        for tensor in tensors:
            for one in readers.get(tensor, ()):
                self._look(branch, one)

    def _look(self, branch: Branch, one: CompiledStep) -> None:
        """Let the step run in every branch of its level from here on where it can."""
        if branch.halves is not None:
            for half in branch.halves:
                self._look(half, one)
        elif branch.level != one.level:
            for below in tuple(branch.below):  # one whose step is skipped is dropped
                self._look(below, one)
        elif one.step.number not in branch.done:
            self._try(branch, one)

    def _try(self, branch: Branch, one: CompiledStep) -> None:
        step = one.step
        if step.condition is not None:
            value = branch.find(step.condition.tensor)
            if value is None:
                self._skip_if_dead(branch, one)
                return
            numbers = value.reshape(-1)
            holds = step.condition.holds(numbers if len(numbers) != 1 else numbers[0])
            if len(numbers) != 1:  # numpy's `any` takes 3 µs of one
                some = np.any(holds)
                if some and not np.all(holds):
                    self._split(branch, holds)
                    return
                holds = some
            if not holds:
                self._skip(branch, one)
                return
        inputs = {}
        for given, tensor in step.inputs.items():
            array = branch.find(tensor)
            if array is not None:
                inputs[given] = array
            elif given not in one.optional or tensor in self._plan.producers:
                self._skip_if_dead(branch, one)
                return
        branch.done.add(step.number)
        if step.mapped:
            self._map(branch, one, inputs)
        else:
            self._ready.append(StepCall(one, inputs, branch))

    def _skip_if_dead(self, branch: Branch, one: CompiledStep) -> None:
        """Skip a step one of whose tensors nobody will write."""
        for tensor in one.step.needs():
            by = self._plan.producers.get(tensor, ())
            if by and branch.find(tensor) is None and all(map(branch.is_skipped, by)):
                self._skip(branch, one)
                return

    def _skip(self, branch: Branch, one: CompiledStep) -> None:
        branch.done.add(one.step.number)
        branch.skipped.add(one.step.number)
        self.skips.append(
            (one.step.number, self._rows if branch.rows is None else len(branch.rows))
        )
        if one.decoupled:
            self._complete(branch)
        for tensor in one.step.outputs.values():
            for reader in self._plan.readers.get(tensor, ()):
                self._look(branch, reader)

    def _split(self, branch: Branch, holds: Array) -> None:
        """Go on with the rows for which a condition holds and those for which not, apart."""
        if not self._plan.batched:
            raise EnsembleFailed("a condition needs one number, and the tensor has more")
        if any(one.decoupled for one in self._plan.steps):
            raise EnsembleFailed(
                "a condition holds for some of the request's rows only, and steps of the ensemble "
                "are decoupled; send one row in a request"
            )
        halves = []
        for rows in (np.flatnonzero(holds), np.flatnonzero(~holds)):
            half = Branch({}, branch.level, branch)
            half.rows, half.done, half.skipped = rows, set(branch.done), set(branch.skipped)
            halves.append(half)
        branch.halves = (halves[0], halves[1])
        for one in self._plan.steps:
            if one.level == branch.level:
                self._look(branch, one)

    # maps

    def _map(self, branch: Branch, one: CompiledStep, inputs: dict[str, Array]) -> None:
        step = one.step
        lists = [given for given, tensor in step.inputs.items() if tensor == step.mapped]
        count = len(inputs[lists[0]]) if inputs[lists[0]].ndim else 0
        if count > MOST_ITEMS:
            raise EnsembleFailed(
                f"step {step.number} is mapped over '{step.mapped}', which has {count} elements; "
                f"at most {MOST_ITEMS} are allowed"
            )
        if not count:
            raise EnsembleFailed(
                f"step {step.number} is mapped over '{step.mapped}', which is empty; give the step "
                "a condition that is false then"
            )
        items = MappedItems(count)
        for number in range(count):
            own = dict(inputs)
            for given in lists:
                array = inputs[given]
                own[given] = array[number : number + 1] if one.item_batched else array[number]
            self._ready.append(StepCall(one, own, branch, items, number))

    def _gather(self, call: StepCall, items: MappedItems) -> None:
        """The answers of all elements, in their order, along a first dimension."""
        join = np.concatenate if call.step.item_batched else np.stack
        made = {}
        for given, tensor in call.step.step.outputs.items():
            parts = [result[given] for result in items.results if given in result]
            if len(parts) == len(items.results):
                made[tensor] = _joined(join, parts, call, given)
        call.branch.add(made)
        self._arrived(call.branch, made)

    # answers

    def _answer(self, unit: Branch) -> dict[str, Array] | None:
        """The outputs of a branch, None while some are missing."""
        if unit.halves is None:
            found = {}
            for name in self._plan.outputs:
                array = unit.find(name)
                if array is None:
                    return None
                found[name] = array
            return found
        parts: list[tuple[Array, dict[str, Array]]] = []
        for half in unit.halves:
            answer = self._answer(half)
            if answer is None:
                return None
            parts.append((half.rows, answer))
        return {name: _merged(name, parts) for name in self._plan.outputs}


def _merged(name: str, parts: Sequence[tuple[Array, dict[str, Array]]]) -> Array:
    """One tensor of the rows of several."""
    arrays = [answer[name] for _, answer in parts]
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        shown = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise EnsembleFailed(
            f"the rows of '{name}' differ in shape, {shown}, because steps with conditions wrote "
            "them; send one row in a request"
        )
    rows = sum(len(rows) for rows, _ in parts)
    made = np.empty((rows, *arrays[0].shape[1:]), arrays[0].dtype)
    for (at, _), array in zip(parts, arrays, strict=True):
        made[at] = array
    return made


def _joined(join: Any, parts: list[Array], call: StepCall, given: str) -> Array:
    try:
        made: Array = join(parts)
    except ValueError:
        shapes = sorted({str(list(part.shape)) for part in parts})
        step = call.step.step
        raise EnsembleFailed(
            f"step {step.number} is mapped, and output '{given}' of '{step.model}' differs in "
            f"shape from element to element: {', '.join(shapes[:4])}"
        ) from None
    return made
