"""`modelyard rollout …`."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from control.rollouts.outlook import RolloutOutlook
from control.rollouts.state import ENDS, Phase
from control.rollouts.views import RolloutView, Standing
from control.views import EventView, Page
from server.cli.commands.client import ApiClient, ServerUnreachable, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    as_json,
    local_time,
    plain,
)

LOOK_S, PATIENCE_S = 0.5, 60.0
"""Between two looks at a rollout that is followed; how long a server may not answer meanwhile."""

_COLUMNS: Columns = {
    "id": "id",
    "name": "name",
    "stable": "stable",
    "candidate": "candidate",
    "phase": lambda item: item.phase + (f" ({item.pause})" if item.pause else ""),
    "weight": lambda item: f"{item.weight:g} %",
    "begun": "created_at",
    "reason": "reason",
}


def list_rollouts(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"name": given.name, "phase": given.phase}
    return ListOutput(list(api.items("/rollouts", RolloutView, given.limit, **filters)), _COLUMNS)


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    """With how it does at this moment."""
    view = _found(given, api)
    standing = api.get(path_of("rollouts", view.id, "standing"), Standing)
    return RecordOutput({**msgspec.structs.asdict(view), "standing": standing})


def start(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"name": given.NAME, "candidate": given.VERSION, "plan": dict(given.plan or ())}
    view = api.call("POST", "/rollouts", RolloutView, body)
    told = api.get(path_of("rollouts", view.id, "outlook"), RolloutOutlook)
    notes = "".join(f"\nnote: {words}" for words in told.words)
    started = {**msgspec.structs.asdict(view), "outlook": told}
    return MessageOutput(f"rollout {view.id} of {_whom(view)} started{notes}", started)


def follow(given: argparse.Namespace, api: ApiClient) -> Shown:
    """What happens to it, in words, until it ends. Fails when it was not to take over."""
    rollout = _found(given, api).id
    for event in _events(api, rollout):
        if not given.json:
            sys.stdout.write(event_line(event) + "\n")
            sys.stdout.flush()
    view = api.get(path_of("rollouts", rollout), RolloutView)
    if view.phase is not Phase.HEALTHY:
        if given.json:
            sys.stdout.write(as_json(MessageOutput("", view)))
        raise CommandFailed(f"the rollout of {_whom(view)} is {view.phase}: {view.reason}")
    return MessageOutput("", view)


def event_line(event: EventView) -> str:
    """An event of a rollout as a line, e.g. "… step       step 1 of 3: 5 % of the traffic"."""
    kind = event.kind.removeprefix("rollout.")
    return plain(f"{local_time(event.at)}  {kind:<10} {event.data['words']}")


def key(text: str) -> tuple[str, str]:
    """ "steps=1, 10, 50" → a key of the plan and its value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is no key of a plan; give KEY=VALUE")
    return name.strip().removeprefix("rollout."), value.strip()


def _telling(word: str, did: str) -> Callable[[argparse.Namespace, ApiClient], Shown]:
    def tell(given: argparse.Namespace, api: ApiClient) -> Shown:
        view = api.call("POST", path_of("rollouts", _found(given, api).id, word), RolloutView)
        return MessageOutput(
            f"rollout of {_whom(view)} {did}; it is {view.phase}: {view.reason}", view
        )

    return tell


def _whom(view: RolloutView) -> str:
    return f"{view.name} version {view.candidate}"


def _found(given: argparse.Namespace, api: ApiClient) -> RolloutView:
    """By the name it is of, the newest one; else by its id."""
    newest = list(api.items("/rollouts", RolloutView, 1, name=given.ROLLOUT))
    return newest[0] if newest else api.get(path_of("rollouts", given.ROLLOUT), RolloutView)


def _events(api: ApiClient, rollout: str) -> Iterator[EventView]:
    """From its first one on. A server that is started again meanwhile is waited for."""
    last, answered = 0, time.monotonic()
    while True:
        try:
            ended = api.get(path_of("rollouts", rollout), RolloutView).phase in ENDS
            subject = f"rollout:{rollout}"
            rows = api.get("/events", Page[EventView], after=last, subject=subject).items
            answered = time.monotonic()
        except ServerUnreachable:
            if time.monotonic() - answered > PATIENCE_S:
                raise
            time.sleep(LOOK_S)
            continue
        for row in rows:
            last = row.id
            yield row
        if ended and not rows:
            return
        if not rows:
            time.sleep(LOOK_S)


_ROLLOUT = argument("ROLLOUT", "Its id, or the name it is of for the newest one.")

_WORDS = (
    ("promote", "promote to the next step without waiting for the end of this one", "promoted"),
    ("promote-full", "promote: send all traffic to the candidate now", "has all traffic"),
    ("pause", "hold the current weight until resumed", "paused"),
    ("resume", "resume, whatever the pause reason", "resumed"),
    ("abort", "roll back: send all traffic to the stable version at once", "rolled back"),
    ("retry", "retry a rollout that was rolled back", "retried"),
)

COMMANDS = (
    CliCommand(
        "rollout list",
        "list rollouts, newest first",
        list_rollouts,
        (
            argument("--name", "Only those of this public name."),
            argument("--phase", "Only those in this phase, e.g. paused."),
            limited(),
        ),
    ),
    CliCommand(
        "rollout show",
        "show a rollout: its phase, its reason and the analysis so far",
        show,
        (_ROLLOUT,),
    ),
    CliCommand(
        "rollout start",
        "roll a version out by hand",
        start,
        (
            argument("NAME", "The public name, which needs a route."),
            argument("VERSION", "The candidate version.", type=int),
            argument(
                "--plan",
                "A key of docs/rollouts.md as KEY=VALUE, e.g. --plan steps=1,10,50; repeat it.",
                action="append",
                type=key,
            ),
        ),
    ),
    *(
        CliCommand(f"rollout {word}", meaning, _telling(word, did), (_ROLLOUT,))
        for word, meaning, did in _WORDS
    ),
    CliCommand(
        "rollout follow",
        "follow a rollout's events until it ends; exit status 0 if the candidate was promoted",
        follow,
        (_ROLLOUT,),
    ),
)
