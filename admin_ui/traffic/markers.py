"""Deployments and changes of weights as marks in charts, from events. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from admin_ui import event_text
from admin_ui.text import link

KINDS = "model.*,alias.*,route.*,rollout.*"
"""Of the events that change what is served, or by whom."""
MOST = 20
"""The newest ones; more lines in a chart hide what is drawn."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
QUIET = (".pending", ".in_force")
"""Endings of kinds that say how a change went about, not that there was one."""
BAD = ("model.failing", "rollout.abort", "rollout.degrade")

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChartMarker:
    """`at` in seconds since the epoch; `words`: what changed, several where they came together;
    `bad`: something failed, or was rolled back."""

    at: int
    moment: str
    letter: str
    words: Sequence[str]
    to: str
    bad: bool = False


def markers_of(events: Iterable[Event], since: int, until: int, step_s: int) -> list[ChartMarker]:
    """The oldest first; what falls into one point is one mark."""
    found: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda one: str(one["at"])):
        at = int(datetime.fromisoformat(event["at"]).timestamp())
        if since <= at < until and not event["kind"].endswith(QUIET):
            found.setdefault((at - since) // step_s, []).append(event)
    shown = list(found.values())[-MOST:]
    return [_marker(letter, several) for letter, several in zip(LETTERS, shown, strict=False)]


def _marker(letter: str, events: Sequence[Event]) -> ChartMarker:
    first = events[0]
    at = int(datetime.fromisoformat(first["at"]).timestamp())
    words = list(dict.fromkeys(event_text.words(one) for one in events))
    bad = any(one["kind"] in BAD for one in events)
    return ChartMarker(at, str(first["at"]), letter, words, _page(events[-1]), bad)


def _page(event: Event) -> str:
    """Where more is said of it."""
    family, _, thing = str(event["subject"]).partition(":")
    model, _, rest = thing.partition("@")
    if family == "rollout":
        return link("/rollouts/{rollout}", rollout=thing)
    if family == "route":
        return link("/routes/{route}", route=thing)
    if family == "version" and rest:
        return link("/models/{model}/versions/{version}", model=model, version=rest)
    return link("/models/{model}", model=model)


def is_about(event: Event, route: str) -> bool:
    """Whether a rollout's event is of this route; all other events are."""
    if not str(event["kind"]).startswith("rollout."):
        return True
    return str(event["data"].get("name", "")) == route
