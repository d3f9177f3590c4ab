"""The terms of an experiment: arms, metrics and limits, fixed once it runs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from control.errors import Invalid
from control.experiments.metrics import NAME, Metric, parse_metric, real
from control.routes.buckets import BUCKETS
from control.statistics.sequential import HORIZON
from control.text import stored_json

MOST_ARMS, MOST_METRICS, MOST_HORIZON = 10, 20, 100_000_000
DAY_S = 86_400
WINDOW_S, LONGEST_WINDOW_S = 7 * DAY_S, 90 * DAY_S

_KEYS = ("arms", "metrics", "alpha", "horizon", "namespace", "share_percent", "window_s")


class ExperimentArm(msgspec.Struct, frozen=True):
    """`share`: of the units of all arms, in any unit. `model` and `version` (0: whichever is
    served) are for people, and to find the experiment that feedback for a model belongs to."""

    name: str
    share: float
    model: str = ""
    version: int = 0


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
    unknown = sorted(map(str, raw.keys() - set(_KEYS)))
    if unknown:
        raise Invalid(
            f"an experiment has no '{unknown[0]:.80}'; it has {', '.join(_KEYS)}", unknown[0][:80]
        )
    namespace = _namespace(raw.get("namespace", ""))
    return ExperimentTerms(
        _arms(raw.get("arms")),
        _metrics(raw.get("metrics")),
        _number(raw, "alpha", 0.05, 1e-4, 0.2),
        _whole(raw, "horizon", HORIZON, 100, MOST_HORIZON),
        namespace,
        _share(raw, namespace),
        _number(raw, "window_s", WINDOW_S, 1, LONGEST_WINDOW_S),
    )


def _arms(raw: object) -> tuple[ExperimentArm, ...]:
    rows = _rows(raw, "arms", 2, MOST_ARMS, "the first of them the control")
    arms = tuple(_arm(row) for row in rows)
    names = [arm.name for arm in arms]
    _check_once(names, "arms")
    return arms


def _arm(raw: Mapping[str, Any]) -> ExperimentArm:
    name, model = raw.get("name"), raw.get("model", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Invalid(
            f"{name!r:.80} cannot name an arm: use 1 to 63 of a-z, 0-9, '_' and '-', with a "
            "letter first",
            "arms",
        )
    if not isinstance(model, str) or len(model) > 255 or not (model + "x").isprintable():
        raise Invalid(f"arm '{name}': model cannot be {model!r:.80}; give a model's name", "arms")
    return ExperimentArm(
        name,
        _number(raw, "share", 1.0, 1e-4, 1e6, f"arm '{name}': "),
        model,
        _whole(raw, "version", 0, 0, 2**62, f"arm '{name}': "),
    )


def _metrics(raw: object) -> tuple[Metric, ...]:
    metrics = tuple(parse_metric(row) for row in _rows(raw, "metrics", 1, MOST_METRICS, "declared"))
    _check_once([metric.name for metric in metrics], "metrics")
    return metrics


def _rows(raw: object, key: str, least: int, most: int, what: str) -> list[Mapping[str, Any]]:
    if isinstance(raw, (list, tuple)) and least <= len(raw) <= most:
        rows = [row for row in raw if isinstance(row, Mapping)]
        if len(rows) == len(raw):
            return rows
    raise Invalid(f"{key} must be a list of {least} to {most} objects, {what}", key)


def _check_once(names: Sequence[str], key: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"{key} has '{name}' twice; give each a name of its own", key)


def _namespace(raw: object) -> str:
    if raw == "" or (isinstance(raw, str) and NAME.fullmatch(raw)):
        return raw
    raise Invalid(
        f"{raw!r:.80} cannot name a namespace: use 1 to 63 of a-z, 0-9, '_' and '-', with a "
        "letter first",
        "namespace",
    )


def _share(raw: Mapping[str, Any], namespace: str) -> int:
    if not namespace and raw.get("share_percent", 100) != 100:
        raise Invalid("a share_percent needs a namespace to share", "share_percent")
    return round(_number(raw, "share_percent", 100.0, 0.01, 100) * BUCKETS / 100)


def _number(
    raw: Mapping[str, Any], key: str, default: float, least: float, most: float, where: str = ""
) -> float:
    value = real(raw.get(key, default))
    if value is None or not least <= value <= most:  # false for NaN
        raise Invalid(
            f"{where}{key} cannot be {raw.get(key)!r:.80}; give a number from {least:g} to "
            f"{most:g}",
            "arms" if where else key,
        )
    return value


def _whole(
    raw: Mapping[str, Any], key: str, default: int, least: int, most: int, where: str = ""
) -> int:
    value = raw.get(key, default)
    if type(value) is not int or not least <= value <= most:
        raise Invalid(
            f"{where}{key} cannot be {value!r:.80}; give a whole number from {least} to {most}",
            "arms" if where else key,
        )
    return value
