"""One request on its way through steps that all run once and are all answered once. Pure.

Most ensembles are such: no step is decoupled, mapped, bounded, or has a condition or an optional
input. Then it is enough to count the tensors that each step still waits for; all others take
`schedulers.ensembles.policy.run`, whose outcome is the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from repository.config.tensors import Array
from schedulers.ensembles.policy.compile import CompiledStep
from schedulers.ensembles.policy.step_call import NO_ANSWER, StepCall
from schedulers.ensembles.policy.stream_hold import Backlog
from schedulers.errors import EnsembleFailed


class StaticPlan(NamedTuple):
    """The steps by their place here. `awaited`: how many tensors of other steps each waits for;
    `readers`: tensor → places of the steps that wait for it; `given`: tensors of the request that
    steps read; `unmade`: outputs that steps write; `kept`: by place, the outputs of each step that
    anybody reads, with their tensors. `asked`: as of `RequestPlan`."""

    steps: tuple[CompiledStep, ...]
    awaited: tuple[int, ...]
    readers: Mapping[str, tuple[int, ...]]
    given: frozenset[str]
    unmade: frozenset[str]
    kept: tuple[tuple[tuple[str, str], ...], ...]
    asked: Mapping[int, tuple[str, ...]]


def static_plan(
    steps: Sequence[CompiledStep],
    produced: Iterable[str],
    outputs: Iterable[str],
    asked: Mapping[int, tuple[str, ...]],
) -> StaticPlan | None:
    """None where a step may run never, several times or later. `produced`: what steps write."""
    made = frozenset(produced)
    if any(
        one.decoupled or one.step.mapped or one.step.condition is not None or one.optional
        for one in steps
    ):
        return None
    readers: dict[str, list[int]] = {}
    awaited = []
    for place, one in enumerate(steps):
        waits = made.intersection(one.step.inputs.values())
        awaited.append(len(waits))
        for tensor in waits:
            readers.setdefault(tensor, []).append(place)
    unmade = made.intersection(outputs)
    return StaticPlan(
        tuple(steps),
        tuple(awaited),
        {tensor: tuple(places) for tensor, places in readers.items()},
        frozenset(tensor for one in steps for tensor in one.step.inputs.values()) - made,
        unmade,
        tuple(
            tuple(
                (given, tensor)
                for given, tensor in one.step.outputs.items()
                if tensor in readers or tensor in unmade
            )
            for one in steps
        ),
        asked,
    )


class StaticRun:
    """One request's state; as `EnsembleRun`."""

    __slots__ = ("_awaited", "_outputs", "_plan", "_ready", "_tensors", "_unmade", "inflight")

    def __init__(
        self, plan: StaticPlan, outputs: tuple[str, ...], inputs: Mapping[str, Array]
    ) -> None:
        self._plan = plan
        self._outputs = outputs
        self._tensors = dict(inputs)
        self._awaited = list(plan.awaited)
        self._unmade = len(plan.unmade)
        self.inflight = 0
        self._ready: list[StepCall] = [
            self._call(one) for one, n in zip(plan.steps, plan.awaited, strict=True) if not n
        ]

    # as EnsembleRun's, whose docstrings hold here too

    def take(self) -> Sequence[StepCall]:
        ready = self._ready
        if ready:
            self._ready = []
            self.inflight += len(ready)
        return ready

    def waiting_behind(self, number: int) -> Backlog:
        return Backlog(0, 0)  # there are no limits, and nothing is decoupled

    def answered(self, call: StepCall, outputs: Mapping[str, Array]) -> None:
        pairs, plan = call.step.step.outputs, self._plan
        for given, array in outputs.items():
            tensor = pairs.get(given)
            if tensor is None:
                continue
            self._tensors[tensor] = array
            if tensor in plan.unmade:
                self._unmade -= 1
            for place in plan.readers.get(tensor, ()):
                self._awaited[place] -= 1
                if not self._awaited[place]:
                    self._ready.append(self._call(plan.steps[place]))

    def ended(self, call: StepCall) -> None:
        self.inflight -= 1

    def responses(self) -> Sequence[dict[str, Array]]:
        if self._unmade:
            return ()
        self._unmade = -1
        tensors = self._tensors
        return ({name: tensors[name] for name in self._outputs},)

    def asked(self, call: StepCall) -> tuple[str, ...]:
        return self._plan.asked[call.step.step.number]

    @property
    def is_unary(self) -> bool:
        return True

    @property
    def finished(self) -> bool:
        return not self.inflight and not self._ready

    def missing(self) -> str:
        return NO_ANSWER if self._unmade > 0 else ""

    def _call(self, one: CompiledStep) -> StepCall:
        tensors = self._tensors
        return StepCall(one, {given: tensors[name] for given, name in one.step.inputs.items()})


class StaticGroup:
    """Several requests that go through the steps together. `tensors`: of each request, by its
    place among them; of one whose way has ended, whatever it had."""

    __slots__ = ("_awaited", "_outputs", "_plan", "_ready", "_unmade", "tensors")

    def __init__(self, plan: StaticPlan, outputs: tuple[str, ...]) -> None:
        self._plan = plan
        self._outputs = outputs
        self._awaited = list(plan.awaited)
        self._unmade = len(plan.unmade)
        self._ready = [place for place, count in enumerate(plan.awaited) if not count]
        self.tensors: list[dict[str, Array]] = []

    def add(self, inputs: Mapping[str, Array]) -> None:
        """One more request; before any step is taken."""
        self.tensors.append(dict(inputs))

    def take(self) -> list[int]:
        """The places of the steps that may start now."""
        ready, self._ready = self._ready, []
        return ready

    def inputs(self, step: int, request: int) -> dict[str, Array]:
        """Of a step that may start, for one request."""
        tensors = self.tensors[request]
        return {given: tensors[name] for given, name in self._plan.steps[step].step.inputs.items()}

    def answered(self, step: int, request: int, outputs: Mapping[str, Array]) -> None:
        """Raises EnsembleFailed where somebody would wait for an output that is not there."""
        tensors = self.tensors[request]
        for given, tensor in self._plan.kept[step]:
            array = outputs.get(given)
            if array is None:
                raise EnsembleFailed(NO_ANSWER)
            tensors[tensor] = array

    def ended(self, step: int) -> None:
        """All requests have been answered by the step, or have ended."""
        plan = self._plan
        for _, tensor in plan.kept[step]:
            if tensor in plan.unmade:
                self._unmade -= 1
            for place in plan.readers.get(tensor, ()):
                self._awaited[place] -= 1
                if not self._awaited[place]:
                    self._ready.append(place)

    @property
    def complete(self) -> bool:
        """Whether all outputs of all requests are there."""
        return not self._unmade

    def outputs(self, request: int) -> dict[str, Array]:
        tensors = self.tensors[request]
        return {name: tensors[name] for name in self._outputs}
