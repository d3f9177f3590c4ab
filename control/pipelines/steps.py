"""The steps that a model's jobs.json declares, with errors that say where in it they are. Pure.

The file is `{"steps": [{"type": "optimise"}, {"type": "quantise", "floor": 0.98}]}`. A step has the
fields of its type of job but for the version, which the pipeline fills in, and may have `limits`;
the last may be a rollout, with the keys of a plan, or an alias, with its name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from control.deployments.aliases import check_alias_name
from control.errors import Invalid
from control.jobs.policy.limits import usual_limits
from control.jobs.policy.results import makes_version, suffix
from control.jobs.service import type_of
from control.jobs.spec import JOB_TYPES, JobSpec
from control.jobs.spec_document import read_limits, read_spec
from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import SAMPLED
from control.rollouts.plan import RolloutPlan
from control.rollouts.plan_keys import parse_plan

FILE = "jobs.json"
MOST_STEPS, LARGEST_BYTES = 8, 64 * 1024

ROLLOUT, ALIAS = "rollout", "alias"
_TYPES = (*JOB_TYPES, ROLLOUT, ALIAS)
_FILLED = ("model", "version")
_BYTE = re.compile(r"\(byte (\d+)\)")


class BadSteps(Exception):
    """The declaration cannot be followed. `path`: where, such as "$.steps[1].floor", "" where it is
    no JSON; `at`: the byte then."""

    def __init__(self, message: str, path: str, at: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.at = at


@dataclass(frozen=True, slots=True)
class JobStep:
    """A job on what the step before has made. `document`, `limits`: of its spec, with the model
    that was pushed as its model."""

    spec: JobSpec
    document: Mapping[str, Any]
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs_code(self) -> bool:
        """Whether the job runs code that came with the model."""
        return self.spec.NEEDS_TRUST or self.trusted

    @property
    def trusted(self) -> bool:
        """Whether the spec says itself that files which can run code are to be trusted."""
        return bool(getattr(self.spec, "trusted", False))

    @property
    def result_model(self) -> str:
        """The model that gets the result; named after the one that was pushed where nobody says."""
        if not makes_version(self.spec):
            return ""
        return self.spec.result_model or f"{self.spec.model}-{suffix(self.spec)}"


@dataclass(frozen=True, slots=True)
class ResultRollout:
    """A rollout of what the step before has made, to the route of its model."""

    plan: RolloutPlan


@dataclass(frozen=True, slots=True)
class ResultAlias:
    """An alias of the model that the step before has made a version of, moved to that."""

    name: str


Step = JobStep | ResultRollout | ResultAlias


def declared_steps(raw: bytes, model: str) -> tuple[list[dict[str, Any]], tuple[Step, ...]]:
    """The steps of a file for `model`, as documents and as they are understood. Raises BadSteps."""
    if len(raw) > LARGEST_BYTES:
        raise BadSteps(f"{FILE} is too large; at most {LARGEST_BYTES} bytes", "$")
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSteps(f"{FILE} is no JSON: {error}", "", _byte_of(str(error), raw)) from error
    example = '{"steps": [{"type": "optimise"}, {"type": "quantise"}]}'
    if not isinstance(document, dict) or "steps" not in document:
        raise BadSteps(f"{FILE} must be an object with the list 'steps', as in {example}", "$")
    if others := [name for name in document if name != "steps"]:
        raise BadSteps(f"there is no '{others[0]:.80}' in {FILE}; there is steps", _at(others[0]))
    steps = document["steps"]
    if not isinstance(steps, list) or not 1 <= len(steps) <= MOST_STEPS:
        raise BadSteps(
            f"steps must be a list of 1 to {MOST_STEPS} steps, as in {example}", "$.steps"
        )
    return steps, read_steps(steps, model)


def read_steps(documents: Sequence[Any], model: str) -> tuple[Step, ...]:
    """Raises BadSteps."""
    found = []
    for number, document in enumerate(documents):
        where = f"$.steps[{number}]"
        try:
            step = _step(document, model)
            _check_order(step, number, len(documents))
        except Invalid as error:
            name = error.field if isinstance(document, dict) and error.field in document else ""
            path = where + (f".{name}" if name else "")
            raise BadSteps(f"step {number + 1}: {error}", path) from error
        found.append(step)
    return tuple(found)


def _step(document: Any, model: str) -> Step:
    if not isinstance(document, dict):
        raise Invalid(f"must be an object with a type, one of {', '.join(_TYPES)}")
    kind = document.get("type")
    if kind not in _TYPES:
        shown = repr(kind) if "type" in document else "missing"
        raise Invalid(f"type is {shown:.80}; give {', '.join(_TYPES)}", "type")
    fields = {name: value for name, value in document.items() if name != "type"}
    if kind == ROLLOUT:
        return ResultRollout(parse_plan(fields))
    if kind == ALIAS:
        return _alias(fields)
    return _job(document, model)


def _job(document: Mapping[str, Any], model: str) -> JobStep:
    for name in _FILLED:
        if name in document:
            raise Invalid(
                f"leave {name} out: the first step works on the version that is pushed, each other "
                "one on what the step before has made",
                name,
            )
    limits = document.get("limits", {})
    if not isinstance(limits, dict):
        raise Invalid('limits must be an object, as in {"threads": 2}', "limits")
    fields = {name: value for name, value in document.items() if name != "limits"}
    spec = read_spec({**fields, "model": model})
    if isinstance(spec, ProfileSpec) and spec.data == SAMPLED:
        raise Invalid(
            f"data is '{SAMPLED}', and no request has been sampled of a version that is just "
            "pushed: name a data file, or ask for the profile once requests were sampled, with "
            f"modelyard job profile {model} --set data={SAMPLED}",
            "data",
        )
    try:
        read_limits(limits, usual_limits(type_of(spec)))
    except Invalid as error:
        raise Invalid(f"limits: {error}", "limits") from error
    return JobStep(spec, {**fields, "model": model}, limits)


def _alias(fields: Mapping[str, Any]) -> ResultAlias:
    for field_name in fields:
        if field_name != "name":
            raise Invalid(f"an alias has no field '{field_name:.80}'; there is name", field_name)
    name = fields.get("name")
    if not isinstance(name, str):
        raise Invalid('name is missing: the alias to move, as in {"name": "small"}', "name")
    check_alias_name(name)
    return ResultAlias(name)


def _check_order(step: Step, number: int, steps: int) -> None:
    """Raises Invalid for a step that cannot stand there."""
    is_last = number == steps - 1
    if not isinstance(step, JobStep):
        if not number:
            raise Invalid("the first step must be a job", "type")
        if not is_last:
            raise Invalid("a rollout or an alias can only be the last step", "type")
        return
    if not makes_version(step.spec) and not is_last:
        raise Invalid("a profile makes no version, so it can only be the last step", "type")
    if step.runs_code and number:
        raise Invalid(
            "it runs code that came with the model, so it can only be the first step, which works "
            "on the version that is pushed",
            "type",
        )
    if step.result_model == step.spec.model:
        raise Invalid(
            f"result_model is '{step.spec.model}', which only pushes change; give another name, "
            "or leave it out",
            "result_model",
        )


def _byte_of(message: str, raw: bytes) -> int:
    found = _BYTE.search(message)
    return int(found[1]) if found else len(raw.rstrip())


def _at(name: str) -> str:
    return f"$.{name}" if name.isidentifier() else "$"
