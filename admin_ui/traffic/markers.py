"""Deployments, loads and changes of weights as marks in charts, from events. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from admin_ui import event_text
from admin_ui.text import link

KINDS = "model.*,alias.*,route.*,rollout.*"
"""Of the events that change what is served, or by whom."""
LOADS = "load.*"
"""Of what servers loaded: all there is to mark of the model of a folder, and thousands where a
server with many was restarted, so that they are read apart."""
MOST_WORDS = 8
"""Of one mark."""
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
    """The oldest first; what falls into one point is one mark. Of too many, those of loads alone
    are left out first, then the oldest."""
    found: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda one: str(one["at"])):
        at = int(datetime.fromisoformat(event["at"]).timestamp())
        if since <= at < until and _is_marked(event):
            found.setdefault((at - since) // step_s, []).append(event)
    ranked = sorted(found, key=lambda point: (all(map(_is_load, found[point])), -point))
    shown = [found[point] for point in sorted(ranked[:MOST])]
    return [_marker(letter, several) for letter, several in zip(LETTERS, shown, strict=False)]


def _marker(letter: str, events: Sequence[Event]) -> ChartMarker:
    first = events[0]
    at = int(datetime.fromisoformat(first["at"]).timestamp())
    words = list(dict.fromkeys(event_text.words(one) for one in events))
    if len(words) > MOST_WORDS:
        words = [*words[:MOST_WORDS], f"and {len(words) - MOST_WORDS} more"]
    bad = any(one["kind"] in BAD or _is_failed_load(one) for one in events)
    return ChartMarker(at, str(first["at"]), letter, words, _page(events[-1]), bad)


def _is_load(event: Event) -> bool:
    return str(event["kind"]).startswith("load.")


def _is_marked(event: Event) -> bool:
    """Of loads how they ended, and of versions alone."""
    if not _is_load(event):
        return not event["kind"].endswith(QUIET)
    data = event["data"]
    ended = data.get("state") in ("READY", "FAILED", "UNLOADED") or event["kind"] == "load.gone"
    return bool(data.get("version")) and ended


def _is_failed_load(event: Event) -> bool:
    """Also a reload that failed while what was loaded before goes on."""
    data = event["data"]
    is_bad = data.get("state") == "FAILED" or (data.get("state") == "READY" and data.get("reason"))
    return event["kind"] == "load.changed" and bool(is_bad)


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
