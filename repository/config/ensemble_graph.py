"""An ensemble's steps as its config has them: which model, which tensors, when, and over what.

Conditions and maps stand in `parameters`, which Triton leaves alone: `condition.STEP` is
"TENSOR < 0.9", `map.STEP` is "TENSOR". STEP is the step's number, from 0, or the name of its model
where no other step has it. Pure.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from repository.model import ModelConfig

CONDITION, MAP = "condition.", "map."

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

_CONDITION = re.compile(r"\s*(\S+)\s*(<=|>=|==|!=|<|>)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")


class StepCondition(NamedTuple):
    """A step runs for the rows whose element of `tensor` compares so with `bound`."""

    tensor: str
    sign: str
    bound: float

    def holds(self, value: Any) -> Any:
        """For a number, or for each element of an array."""
        return OPERATORS[self.sign](value, self.bound)

    def __str__(self) -> str:
        return f"{self.tensor} {self.sign} {self.bound:g}"


class EnsembleStep(NamedTuple):
    """One step. `inputs`: of the model → the ensemble's tensor; `outputs` likewise. `version`: ""
    for any. `mapped`: the tensor for each of whose elements it runs, "" where it runs once."""

    number: int
    model: str
    version: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    condition: StepCondition | None = None
    mapped: str = ""

    def needs(self) -> tuple[str, ...]:
        """The tensors it waits for, that of its condition first."""
        first = () if self.condition is None else (self.condition.tensor,)
        return tuple(dict.fromkeys((*first, *self.inputs.values())))


class EnsembleGraph(NamedTuple):
    """All steps, in the order of the config. `max_inflight`: how many requests of one step may run
    for one request of the ensemble; 0 for any number."""

    name: str
    steps: tuple[EnsembleStep, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_batch: int
    max_inflight: int

    def callees(self) -> tuple[tuple[str, str], ...]:
        """Model and version text of each step, each pair once."""
        return tuple(dict.fromkeys((step.model, step.version) for step in self.steps))

    def producers(self) -> dict[str, list[EnsembleStep]]:
        """The steps that write each tensor."""
        found: dict[str, list[EnsembleStep]] = {}
        for step in self.steps:
            for tensor in step.outputs.values():
                found.setdefault(tensor, []).append(step)
        return found


def read_graph(config: ModelConfig) -> EnsembleGraph:
    """The graph of an ensemble's config; what cannot be read of a condition or map is left out
    (`repository.config.ensemble_rules` complains of it)."""
    terms = {key: value.string_value for key, value in config.parameters.items()}
    steps = config.ensemble_scheduling.step
    names = [step.model_name for step in steps]
    return EnsembleGraph(
        config.name,
        tuple(
            EnsembleStep(
                number,
                step.model_name,
                str(step.model_version) if step.model_version > 0 else "",
                dict(step.input_map),
                dict(step.output_map),
                parse_condition(_term(terms, CONDITION, number, names)),
                _term(terms, MAP, number, names).strip(),
            )
            for number, step in enumerate(steps)
        ),
        tuple(tensor.name for tensor in config.input),
        tuple(tensor.name for tensor in config.output),
        config.max_batch_size,
        config.ensemble_scheduling.max_inflight_requests,
    )


def parse_condition(text: str) -> StepCondition | None:
    """None for what is none."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        return None
    try:
        return StepCondition(found[1], found[2], float(found[3]))
    except ValueError:
        return None


def step_of(key: str, names: Sequence[str]) -> int | None:
    """The number of the step that "condition.STEP" is about, None where there is none."""
    step = key.partition(".")[2]
    if step.isascii() and step.isdigit() and len(step) < 9:
        return int(step) if int(step) < len(names) else None
    return names.index(step) if names.count(step) == 1 else None


def _term(terms: Mapping[str, str], prefix: str, number: int, names: Sequence[str]) -> str:
    for key, value in terms.items():
        if key.startswith(prefix) and step_of(key, names) == number:
            return value
    return ""
