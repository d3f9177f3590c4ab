"""`modelyard event …` and `modelyard audit`."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from control.routes.event_text import change_text
from control.views import AuditView, EventView
from server.cli.commands.client import ApiClient, ServerUnreachable
from server.cli.commands.command import CliCommand, argument, limited, whole
from server.cli.commands.output import Columns, ListOutput, Shown, cell

PATIENCE_S, PAUSE_S = 60.0, 1.0
"""How long, and how often, a stream that broke off is asked for again."""

_EVENT_COLUMNS: Columns = {
    "id": "id",
    "at": "at",
    "kind": "kind",
    "subject": "subject",
    "actor": "actor",
    "change": lambda item: change_text({"subject": item.subject, "data": item.data}),
}
_AUDIT_COLUMNS: Columns = {
    "at": "at",
    "actor": "actor",
    "via": "via",
    "address": "address",
    "action": "action",
    "subject": "subject",
    "before": "before",
    "after": "after",
}


def list_events(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"after": given.after, "kind": given.kind, "subject": given.subject}
    return ListOutput(list(api.items("/events", EventView, given.limit, **filters)), _EVENT_COLUMNS)


def follow(given: argparse.Namespace, api: ApiClient) -> Shown:
    """Until interrupted; a stream that breaks off is taken up where it was."""
    last, broke_at = given.after, None
    while True:
        try:
            for event_id, document in _stream(given, api, last):
                last, broke_at = event_id, None
                if document is not None:
                    _write(given, document)
        except ServerUnreachable:
            if last is None or (broke_at and time.monotonic() - broke_at > PATIENCE_S):
                raise
        broke_at = broke_at or time.monotonic()
        time.sleep(PAUSE_S)


def audit(given: argparse.Namespace, api: ApiClient) -> Shown:
    names = ("actor", "action", "subject", "since", "until")
    filters = {name: getattr(given, name) for name in names}
    return ListOutput(list(api.items("/audit", AuditView, given.limit, **filters)), _AUDIT_COLUMNS)


def _stream(
    given: argparse.Namespace, api: ApiClient, last: int | None
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    query = {"after": last, "kind": given.kind, "subject": given.subject}
    with api.stream("/events", **query) as lines:
        yield from parse_stream(lines)


def parse_stream(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Id and document of each event of a stream in our own form: one line of data each. An id
    without a document says where a stream that had no events yet can be taken up."""
    event_id: int | None = None
    document = None
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            event_id = int(value)
        elif name == "data":
            document = json.loads(value)
        elif not name and event_id is not None:
            yield event_id, document
            event_id, document = None, None


def _write(given: argparse.Namespace, event: dict[str, Any]) -> None:
    if given.json:
        text = json.dumps(event, ensure_ascii=False)
    else:
        names = ("at", "kind", "subject", "actor", "data")
        text = "  ".join(cell(event[name]) for name in names if name in event)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


_FILTERS = (
    argument("--after", "Only events later than this id.", type=whole),
    argument("--kind", "Kinds, separated by commas; alias.* for all of alias."),
    argument("--subject", "Subjects, separated by commas, e.g. model:digits or push:*."),
)

COMMANDS = (
    CliCommand("event list", "list events, oldest first", list_events, (*_FILTERS, limited())),
    CliCommand("event follow", "print events as they happen", follow, _FILTERS),
    CliCommand(
        "audit",
        "list who changed what, newest first",
        audit,
        (
            argument("--actor", "Only by this principal, e.g. user:ada."),
            argument("--action", "Only actions that begin so, e.g. alias."),
            argument("--subject", "Only about this, e.g. alias:digits@champion."),
            argument("--since", "From this moment on, e.g. 2026-11-21T04:24:00Z."),
            argument("--until", "Before this moment."),
            limited(50),
        ),
    ),
)
