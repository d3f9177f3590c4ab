"""The terms of an experiment: arms, metrics and limits, fixed once it runs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, inspect

from control.errors import Invalid
from control.experiments.metrics import NAME, Metric, parse_metric
from control.message_faults import Fault, fault_in
from control.routes.buckets import BUCKETS
from control.statistics.sequential import HORIZON
from control.text import stored_json

MOST_ARMS, MOST_METRICS, MOST_HORIZON = 10, 20, 100_000_000
DAY_S = 86_400
WINDOW_S, LONGEST_WINDOW_S = 7 * DAY_S, 90 * DAY_S


class ExperimentArm(msgspec.Struct, frozen=True):
    """`share`: of the units of all arms, in any unit. `model` and `version` (0: whichever is
    served) are for people, and to find the experiment that feedback for a model belongs to."""

    name: str
    share: Annotated[float, Meta(ge=1e-4, le=1e6)] = 1.0
    model: str = ""
    version: Annotated[int, Meta(ge=0, le=2**62)] = 0


class TermsDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The terms as requests and the table have them; metrics are read by `parse_metric`."""

    arms: Annotated[list[ExperimentArm], Meta(min_length=2, max_length=MOST_ARMS)]
    metrics: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MOST_METRICS)]
    alpha: Annotated[float, Meta(ge=1e-4, le=0.2)] = 0.05
    horizon: Annotated[int, Meta(ge=100, le=MOST_HORIZON)] = HORIZON
    namespace: str = ""
    share_percent: Annotated[float, Meta(ge=0.01, le=100.0)] = 100.0
    window_s: Annotated[float, Meta(ge=1, le=LONGEST_WINDOW_S)] = WINDOW_S


@dataclass(frozen=True, slots=True)
class ExperimentTerms:
    """The first arm is the control, the others are compared with it.

    `horizon`: units of all arms together at which the intervals are narrowest, the planned size.
    `share_buckets`: how many of the namespace's 10,000 buckets; all where there is no namespace.
    `window_s`: how long after its first sight a unit's feedback counts.
    """

    arms: tuple[ExperimentArm, ...]
    metrics: tuple[Metric, ...]
    alpha: float = 0.05
    horizon: int = HORIZON
    namespace: str = ""
    share_buckets: int = BUCKETS
    window_s: float = WINDOW_S

    @property
    def control(self) -> str:
        return self.arms[0].name

    @property
    def share_percent(self) -> float:
        return self.share_buckets * 100 / BUCKETS

    @property
    def shares(self) -> dict[str, float]:
        return {arm.name: arm.share for arm in self.arms}

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """As the table and `parse_terms` have it."""
        return {
            "arms": stored_json(self.arms),
            "metrics": stored_json(self.metrics),
            "alpha": self.alpha,
            "horizon": self.horizon,
            "namespace": self.namespace,
            "share_percent": self.share_percent,
            "window_s": self.window_s,
        }


def parse_terms(raw: Mapping[str, Any]) -> ExperimentTerms:
    """Raises Invalid naming the key, its value and what is allowed."""
    try:
        read = msgspec.convert(raw, TermsDocument)
    except msgspec.ValidationError as error:
        raise _refused(raw, fault_in(raw, error)) from None
    for arm in read.arms:
        _check_arm(arm)
    _check_once([arm.name for arm in read.arms], "arms")
    metrics = tuple(parse_metric(row) for row in read.metrics)
    _check_once([metric.name for metric in metrics], "metrics")
    if read.namespace and not NAME.fullmatch(read.namespace):
        raise _bad_name(read.namespace, "a namespace", "namespace")
    if not read.namespace and read.share_percent != 100:
        raise Invalid("a share_percent needs a namespace to share", "share_percent")
    return ExperimentTerms(
        tuple(read.arms),
        metrics,
        read.alpha,
        read.horizon,
        read.namespace,
        round(read.share_percent * BUCKETS / 100),
        read.window_s,
    )


def _check_arm(arm: ExperimentArm) -> None:
    if not NAME.fullmatch(arm.name):
        raise _bad_name(arm.name, "an arm", "arms")
    if len(arm.model) > 255 or not (arm.model + "x").isprintable():
        raise _bad_model(arm.name, arm.model)


def _check_once(names: Sequence[str], key: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"{key} has '{name}' twice; give each a name of its own", key)


_LISTS = {
    "arms": f"arms must be a list of 2 to {MOST_ARMS} objects, the first of them the control",
    "metrics": f"metrics must be a list of 1 to {MOST_METRICS} objects, declared",
}


def _refused(raw: Mapping[str, Any], fault: Fault) -> Invalid:
    """Terms that are none, by the key or the arm that is at fault."""
    path = fault.path
    if not path:
        keys = TermsDocument.__struct_fields__
        if fault.unknown:
            what = f"an experiment has no '{fault.unknown:.80}'; it has {', '.join(keys)}"
            return Invalid(what, fault.unknown[:80])
        missing = next(key for key in _LISTS if key not in raw)
        return Invalid(_LISTS[missing], missing)
    key = str(path[0])
    if key in _LISTS:
        row = raw[key][path[1]] if len(path) > 1 else None
        if not isinstance(row, Mapping):
            return Invalid(_LISTS[key], key)
        return _refused_arm(row, fault)
    if key == "namespace":
        return _bad_name(fault.value, "a namespace", key)
    return Invalid(_out_of_bounds(TermsDocument, key, fault.value), key)


def _refused_arm(row: Mapping[str, Any], fault: Fault) -> Invalid:
    name = row.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return _bad_name(name, "an arm", "arms")
    key = str(fault.path[2])
    if key == "model":
        return _bad_model(name, fault.value)
    return Invalid(f"arm '{name}': {_out_of_bounds(ExperimentArm, key, fault.value)}", "arms")


def _bad_name(name: object, what: str, key: str) -> Invalid:
    return Invalid(
        f"{name!r:.80} cannot name {what}: use 1 to 63 of a-z, 0-9, '_' and '-', with a "
        "letter first",
        key,
    )


def _bad_model(arm: str, model: object) -> Invalid:
    return Invalid(f"arm '{arm}': model cannot be {model!r:.80}; give a model's name", "arms")


def _out_of_bounds(kind: type[msgspec.Struct], key: str, value: object) -> str:
    of_kind = inspect.type_info(kind)
    assert isinstance(of_kind, inspect.StructType)
    number = next(field.type for field in of_kind.fields if field.name == key)
    assert isinstance(number, inspect.IntType | inspect.FloatType)
    if isinstance(number, inspect.IntType):
        allowed = f"a whole number from {number.ge} to {number.le}"
    else:
        allowed = f"a number from {number.ge:g} to {number.le:g}"
    return f"{key} cannot be {value!r:.80}; give {allowed}"
