"""`modelyard request …`: which version answered."""

import argparse
import sys

from control.views import RequestsView, SilentServerView
from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited, whole
from server.cli.commands.output import Columns, ListOutput, Shown

_COLUMNS: Columns = {
    "came": "at",
    "id": "id",
    "client id": "client_id",
    "model": "model",
    "version": lambda item: item.version or "-",
    "arm": "arm",
    "instance": lambda item: "-" if item.instance is None else item.instance,
    "queue ms": lambda item: f"{item.queue_s * 1e3:.3f}",
    "compute ms": lambda item: f"{item.compute_s * 1e3:.3f}",
    "outcome": "outcome",
    "error": "error",
    "server": "server",
}


def request(given: argparse.Namespace, api: ApiClient) -> Shown:
    found = api.get(
        "/requests",
        RequestsView,
        id=given.ID,
        model=given.model,
        version=given.version,
        arm=given.arm,
        outcome=given.outcome,
        least_ms=given.least_ms,
        order="slowest" if given.slowest else None,
        limit=given.limit,
    )
    if given.ID and not found.items:
        raise CommandFailed(
            f"no request with the id '{given.ID}' is among the last {found.kept} of "
            f"{', '.join(found.servers)}; a server keeps 100,000, none for more than 15 minutes"
            + "".join(f"; {_silence(one)}" for one in found.silent)
        )
    for one in found.silent:
        sys.stderr.write(f"{_silence(one)}\n")
    return ListOutput(found.items, _COLUMNS, f"none of the last {found.kept} requests")


def _silence(one: SilentServerView) -> str:
    return f"no answer of the server {one.server}: {one.reason}"


COMMANDS = (
    CliCommand(
        "request",
        "show which version answered a request, in what time and how it ended; without an id, the "
        "last requests",
        request,
        (
            argument(
                "ID",
                "The response's x-request-id, or what the client called its request.",
                nargs="?",
            ),
            argument("--model", "Only of this model."),
            argument("--version", "Only of this version.", type=whole),
            argument("--arm", "Only of this arm of a route."),
            argument("--outcome", "Only with this one: ok, failed, refused or cancelled."),
            argument("--least-ms", "Only those that took so many milliseconds.", type=whole),
            argument("--slowest", "The slowest first.", action="store_true"),
            limited(),
        ),
    ),
)
