"""A plan from a model's config or from JSON: every key, what may be written, what is wrong. Pure.

A config says `parameters { key: "rollout" value { string_value: "progressive" } }` and refines it
with the keys of KEYS, each with "rollout." before it; JSON has the same keys without that, `mode`
for the first, and `steps` may be a list of {"weight", "hold", "min_sample"}.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from control.errors import Invalid
from control.rollouts.plan import (
    BUCKETS,
    HOLD_S,
    MIN_SAMPLE,
    MIRROR_SAMPLE,
    Guardrails,
    Mode,
    RolloutPlan,
    RolloutStep,
)

PREFIX = "rollout"
MOST_STEPS, LONGEST_S, MOST_REQUESTS = 50, 30 * 86_400.0, 10**9

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DIGITS = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?")


@dataclass(frozen=True, slots=True)
class Key:
    """`read` makes the value of what was written or raises ValueError; `allowed` says what works
    and `means` what it does, for the reader of the docs."""

    read: Callable[[Any], Any]
    allowed: str
    means: str


def parameters_plan(parameters: Mapping[str, str]) -> RolloutPlan | None:
    """The plan in a config's parameters; None when they say nothing of rollouts.

    Raises Invalid naming every key that is wrong, its value and what is allowed.
    """
    said: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == PREFIX:
            said["mode"] = value
        elif name.startswith(f"{PREFIX}."):
            said[name.removeprefix(f"{PREFIX}.")] = value
    return parse_plan(said, f"{PREFIX}.") if said else None


def stored_plan(raw: Mapping[str, Any]) -> RolloutPlan:
    """A plan as a row has it; what a later build has added is left out."""
    return parse_plan({name: value for name, value in raw.items() if name in KEYS})


def parse_plan(raw: Mapping[str, Any], prefix: str = "") -> RolloutPlan:
    """The default plan with what `raw` says instead; `prefix` is how its keys are shown.

    Raises Invalid naming every key that is wrong, its value and what is allowed.
    """
    read: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, value in raw.items():
        shown = PREFIX if prefix and name == "mode" else f"{prefix}{name}"[:80]
        key = KEYS.get(name)
        if key is None:
            known = ", ".join(KEYS)
            problems[shown] = f"there is no {shown!r} in a rollout's plan; there are {known}"
            continue
        try:
            read[name] = key.read(value)
        except (ValueError, TypeError):
            problems[shown] = f"{shown} must be {key.allowed}, got {value!r:.80}"
    if problems:
        raise Invalid("; ".join(problems.values()), next(iter(problems)))
    return _plan(read)


def _plan(read: Mapping[str, Any]) -> RolloutPlan:
    hold_s, sample = read.get("hold", HOLD_S), read.get("min_sample", MIN_SAMPLE)
    weights = read.get("steps") or tuple(_RawStep(step.weight) for step in RolloutPlan().steps)
    steps = [raw.step(hold_s, sample) for raw in weights]
    last = steps.pop() if steps[-1].weight == BUCKETS else RolloutStep(BUCKETS, hold_s, sample)
    mirror = RolloutStep(
        read.get("mirror", 500),
        read.get("mirror_hold", hold_s),
        read.get("mirror_sample", min(MIRROR_SAMPLE, sample)),
    )
    rails = {field: read[name] for name, field in _RAILS.items() if name in read}
    others = {field: read[name] for name, field in _OTHERS.items() if name in read}
    return replace(
        RolloutPlan(),
        mirror=mirror if mirror.weight else None,
        steps=tuple(steps),
        last=last,
        guardrails=replace(Guardrails(), **rails),
        **others,
    )


@dataclass(frozen=True, slots=True)
class _RawStep:
    weight: int
    hold_s: float | None = None
    min_sample: int | None = None

    def step(self, hold_s: float, sample: int) -> RolloutStep:
        return RolloutStep(
            self.weight,
            hold_s if self.hold_s is None else self.hold_s,
            sample if self.min_sample is None else self.min_sample,
        )


def _steps(value: Any) -> tuple[_RawStep, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not 1 <= len(parts) <= MOST_STEPS:
        raise ValueError
    steps = tuple(_step(part) for part in parts)
    weights = [step.weight for step in steps]
    if weights != sorted(set(weights)) or not weights[0]:
        raise ValueError
    return steps


def _step(part: Any) -> _RawStep:
    if not isinstance(part, Mapping):
        return _RawStep(_weight(part))
    if not {"weight"} <= part.keys() <= {"weight", "hold", "min_sample"}:
        raise ValueError
    read = {name: KEYS[name].read(value) for name, value in part.items() if name != "weight"}
    return _RawStep(_weight(part["weight"]), read.get("hold"), read.get("min_sample"))


def _weight(value: Any) -> int:
    buckets = _decimal(value) * BUCKETS / 100
    whole = round(buckets)
    if not 0 <= whole <= BUCKETS or abs(buckets - whole) > 1e-6:
        raise ValueError
    return whole


def _decimal(value: Any) -> float:
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value.strip()) is None:
            raise ValueError
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, str):
        if _DIGITS.fullmatch(value.strip()) is None or len(value) > 20:
            raise ValueError
        return int(value)
    if type(value) is not int:
        raise ValueError
    return value


def _duration_s(value: Any) -> float:
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError
        return float(found[1]) * _UNITS[found[2] or "s"]
    return _decimal(value)


def _within(
    read: Callable[[Any], Any], least: float, most: float, scale: float = 1
) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        number = read(value)
        if not least <= number <= most:
            raise ValueError
        return number * scale if scale != 1 else number

    return checked


_SECONDS = _within(_duration_s, 0, LONGEST_S)
_DURATIONS = 'a duration up to 30 days, such as "90s", "5m", "2h" or a number of seconds'
_RATIO = _within(_decimal, 1, 100)
_RATIOS = "a ratio from 1 to 100"
_SAMPLE = _within(_whole, 1, MOST_REQUESTS)
_SAMPLES = f"a whole number of requests from 1 to {MOST_REQUESTS}"

KEYS: dict[str, Key] = {
    "mode": Key(Mode, f"one of {', '.join(Mode)}", "who moves the rollout on"),
    "mirror": Key(
        _weight,
        "a percentage from 0 (none) to 100 with at most two decimals",
        "share of requests copied to the candidate before it answers any",
    ),
    "mirror_hold": Key(_SECONDS, _DURATIONS, "how long requests are copied at least"),
    "mirror_sample": Key(_SAMPLE, _SAMPLES, "how many copies the candidate must have answered"),
    "steps": Key(
        _steps,
        'growing percentages above 0 and up to 100 with at most two decimals, such as "1, 5, 25"',
        "share of the traffic of each step; 100 follows by itself",
    ),
    "hold": Key(_SECONDS, _DURATIONS, "how long each step lasts at least"),
    "min_sample": Key(_SAMPLE, _SAMPLES, "what each arm must have answered in each step"),
    "window": Key(
        _within(_duration_s, 0.1, 86_400),
        'a duration from 0.1 s to a day, such as "30s"',
        "how long an analysis window is at least",
    ),
    "error_margin": Key(
        _within(_decimal, 0, 100, 0.01),
        "percentage points from 0 to 100",
        "by how much more the candidate may fail before it is rolled back",
    ),
    "latency_ratio": Key(
        _RATIO, _RATIOS, "computing time, p95 or p99 over the stable version's: rolled back"
    ),
    "latency_pause_ratio": Key(_RATIO, _RATIOS, "the same for pausing"),
    "latency_windows": Key(
        _within(_whole, 1, 100),
        "a whole number from 1 to 100",
        "how many windows are compared at least; fewer than 4 decide nothing",
    ),
    "breaker_requests": Key(_SAMPLE, _SAMPLES, "the fast breaker needs so many requests"),
    "breaker_share": Key(
        _within(_decimal, 1, 100, 0.01),
        "a percentage from 1 to 100",
        "of which so many failed: rolled back at once",
    ),
    "memory_ratio": Key(_RATIO, _RATIOS, "resident over declared memory: rolled back"),
    "memory_mib": Key(
        _within(_whole, 0, 2**24),
        f"a whole number of MiB from 1 to {2**24}, 0 for nothing declared",
        "what a worker process of the candidate is declared to hold",
    ),
    "label_drift": Key(
        _within(_decimal, 0, 100),
        "a PSI from 0 (not looked at) to 100, such as 0.2",
        "PSI of the labels of both versions, surely above: rolled back; its drift must be watched",
    ),
    "label_sample": Key(_SAMPLE, _SAMPLES, "labels of each version that takes at least"),
    "prewarm": Key(_SECONDS, _DURATIONS, "how long the candidate may take to be ready"),
    "no_data": Key(_SECONDS, _DURATIONS, "how long a step may be without requests"),
    "undecided": Key(
        _SECONDS,
        _DURATIONS,
        "how long a step waits for a guardrail alone, or as long as it took until then if longer",
    ),
    "rollback_window": Key(
        _within(_whole, 0, 100),
        "a whole number from 0 to 100",
        "one of so many versions back takes over without steps",
    ),
}
"""Every key of a plan, in the order of the docs."""

_RAILS = {
    "window": "window_s",
    "error_margin": "error_margin",
    "latency_ratio": "latency_ratio",
    "latency_pause_ratio": "latency_pause_ratio",
    "latency_windows": "latency_windows",
    "breaker_requests": "breaker_requests",
    "breaker_share": "breaker_share",
    "memory_ratio": "memory_ratio",
    "memory_mib": "memory_mib",
    "label_drift": "label_psi",
    "label_sample": "label_sample",
}
_OTHERS = {
    "mode": "mode",
    "prewarm": "prewarm_s",
    "no_data": "no_data_s",
    "undecided": "undecided_s",
    "rollback_window": "rollback_window",
}
