"""A rollout's charts and history, from the moments that are kept with it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from admin_ui.text import number
from admin_ui.traffic.charts import LIMIT, TrafficChart
from admin_ui.traffic.markers import LETTERS, ChartMarker
from control.rollouts.state import Transition

KEY = "rollout"
"""The range of its charts, in their ids."""

_FAILED = (Transition.ABORT, Transition.DEGRADE)
_STEPS = (Transition.PREWARM, Transition.MIRROR, Transition.STEP, Transition.PROMOTE)
"""Moves that begin a phase with traffic of its own."""
_LABELS: Mapping[str, str] = {
    Transition.START: "Started",
    Transition.PREWARM: "Prewarming",
    Transition.MIRROR: "Mirroring",
    Transition.STEP: "Next step",
    Transition.PAUSE: "Paused",
    Transition.RESUME: "Resumed",
    Transition.PROMOTE: "Promoting",
    Transition.HEALTHY: "Healthy",
    Transition.ABORT: "Rolled back",
    Transition.DEGRADE: "Ended",
    Transition.SUPERSEDE: "Superseded",
    Transition.RETRY: "Retry",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RolloutMove:
    """A move in a rollout's history; `letter` in its charts, "" where it is not marked; `words` are
    short where the page says the reason above."""

    letter: str
    at: str
    words: str
    actor: str
    failed: bool


def evidence_charts(moments: Sequence[Row], plan: Row) -> list[TrafficChart]:
    """Both arms and what the candidate may have: error rate in percent, p99 in ms, requests; and
    the candidate's share of the traffic. Each point counts from the beginning of its phase; what
    stands for the candidate while it is only mirrored are the mirrored requests."""
    if not moments:
        return []
    at = [str(one["at"]) for one in moments]
    arms = [(one["arms"]["stable"], _tried(one)) for one in moments]

    def compared(name: str, caption: str, unit: str, value: Callable[[Row], float | None],
                 limit: Callable[[float], float] | None = None) -> TrafficChart:  # fmt: skip
        stable, tried = ([value(pair[side]) for pair in arms] for side in (0, 1))
        columns = {"stable": stable, "candidate": tried}
        if limit is not None:
            columns["limit"] = [None if one is None else limit(one) for one in stable]
        styles = [(0, False), (1, False), LIMIT][: len(columns)]
        bands = [(2, 0)] if limit is not None else []
        return TrafficChart(
            f"traffic-{name}", caption, unit, list(columns), at, list(columns.values()), {},
            styles=styles, bands=bands,
        )  # fmt: skip

    margin, ratio = plan["error_margin"], plan["latency_ratio"]
    weights = [[one["weight"] for one in moments], [one["mirror"] for one in moments]]
    shares = {"candidate": weights[0], **({"mirrored": weights[1]} if any(weights[1]) else {})}
    return [
        compared("errors", f"Error rate; limit: stable + {margin:g} points", "%", _error_percent,
                 lambda one: round(one + margin, 4)),
        compared("p99", f"Latency, 99th percentile; limit: {ratio:g} × stable", "ms", _p99_ms,
                 lambda one: round(one * ratio, 3)),
        compared("answered", "Requests since the phase began", "", lambda arm: arm["requests"]),
        TrafficChart("traffic-weight", "Share of the traffic", "%", list(shares), at,
                     list(shares.values()), {}, stepped=True),
    ]  # fmt: skip


def history_of(moments: Sequence[Row], events: Sequence[Row], reason: str) -> list[RolloutMove]:
    """All moves, oldest first. `events`: of the rollout, for who made a move; `reason`: what the
    page says above."""
    actors = {(one["kind"], one["at"]): str(one["actor"]) for one in events}
    moves = [one for one in moments if one["move"] and one["move"] != Transition.DEGRADE]
    letters = ["", *LETTERS] if len(moves) <= len(LETTERS) else [""] * len(moves)
    return [
        RolloutMove(
            letter,
            str(one["at"]),
            _words(one, reason),
            actors.get((f"rollout.{one['move']}", one["at"]), ""),
            one["move"] in _FAILED,
        )
        for letter, one in zip(letters, moves, strict=False)
    ]


def move_markers(history: Sequence[RolloutMove]) -> list[ChartMarker]:
    """Of the moves with a letter."""
    return [
        ChartMarker(_seconds(one.at), one.at, one.letter, [one.words], "", one.failed)
        for one in history
        if one.letter
    ]


def failed_moment(moments: Sequence[Row]) -> Row | None:
    """The one at which it was last rolled back, as it stood until then; None where it was not."""
    return next((one for one in moments[::-1] if one["move"] == Transition.ABORT), None)


def failed_span(moments: Sequence[Row]) -> tuple[int, int] | None:
    """From when to when the step lasted in which it was last rolled back, in seconds since the
    epoch; None where it was not."""
    end = failed_moment(moments)
    if end is None:
        return None
    before = [one for one in moments if one["move"] in _STEPS and one["at"] < end["at"]]
    return (_seconds(before[-1]["at"]), _seconds(end["at"])) if before else None


_SHARES = ("errors", "not_a_number", "empty")
"""Guardrails whose numbers are shares of requests."""
_NAMES = {"control": "stable", "lower": "worse by at least", "upper": "worse by at most"}


def figures_of(verdict: Row) -> list[str]:
    """A guardrail's numbers as people read them."""
    found = []
    for key, value in sorted(verdict["numbers"].items()):
        if key == "lower" and verdict["guardrail"] in _SHARES and (value or 0) <= 0:
            continue  # it is not worse for certain
        name = _NAMES.get(key, key) if verdict["guardrail"] in _SHARES else key
        found.append(f"{name.replace('_', ' ')} {_figure(verdict['guardrail'], key, value)}")
    return found


def _figure(guardrail: str, key: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if guardrail not in _SHARES:
        return number(value)
    return f"{value * 100:.2f} {'%' if key in ('candidate', 'control') else 'points'}"


def moment_of(standing: Row, rollout: Row, at: str) -> dict[str, Any]:
    """How it stands now, as a moment after those that are kept."""
    facts = {name: rollout[name] for name in ("phase", "step", "weight", "mirror")}
    return {**facts, "at": at, "move": "", "words": "", "arms": standing["arms"]}


def _tried(moment: Row) -> Row:
    mirrored = moment["mirror"] > 0 and moment["weight"] == 0
    found: Row = moment["arms"]["mirrored" if mirrored else "candidate"]
    return found


def _error_percent(arm: Row) -> float | None:
    return round(arm["errors"] * 100 / arm["requests"], 4) if arm["requests"] else None


def _p99_ms(arm: Row) -> float | None:
    return None if arm["p99_s"] is None else round(arm["p99_s"] * 1000, 3)


def _words(moment: Row, reason: str) -> str:
    words = str(moment["words"])
    if words in (reason, ""):
        return _LABELS.get(moment["move"], str(moment["move"]))
    return words[:1].upper() + words[1:]


def _seconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp())
