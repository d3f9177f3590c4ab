"""`modelyard residency …`: models that load on demand on this server."""

import argparse
from functools import partial

from control.views import Page
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, argument
from server.cli.commands.output import Columns, ListOutput, MessageOutput, Shown

_COLUMNS: Columns = {
    "model": "model",
    "version": "version",
    "state": "state",
    "pinned": "pinned",
    "MiB": lambda item: f"{item.bytes / 2**20:.0f}",
    "idle s": lambda item: "-" if item.idle_s is None else f"{item.idle_s:.0f}",
    "waiting": "waiting",
    "evictions": "evictions",
    "held by": "held_by",
}


def list_all(given: argparse.Namespace, api: ApiClient) -> Shown:
    # With it comes the control API, which no other command is to import.
    from control.gateways.queries import ResidentVersion

    found = list(api.items("/residency", ResidentVersion, None, model=given.MODEL))
    return ListOutput(found, _COLUMNS, "no model loads on demand on this server")


def _change(given: argparse.Namespace, api: ApiClient, verb: str, path: str, text: str) -> Shown:
    api.call(verb, path_of("residency", given.MODEL, path), Page)
    return MessageOutput(text.format(given.MODEL))


_MODEL = argument("MODEL", "The model's name.")


def _command(name: str, help_text: str, verb: str, path: str, text: str) -> CliCommand:
    act = partial(_change, verb=verb, path=path, text=text)
    return CliCommand(f"residency {name}", help_text, act, (_MODEL,))


COMMANDS = (
    CliCommand(
        "residency list",
        "list the models that load on demand on this server, and what keeps each from eviction",
        list_all,
        (argument("MODEL", "The model's name; all if not given.", nargs="?"),),
    ),
    _command("pin", "load a model, and never evict it", "PUT", "pin", "'{}' is pinned"),
    _command("unpin", "let a pinned model be evicted again", "DELETE", "pin", "'{}' is not pinned"),
    _command(
        "evict",
        "unload a model until its next request",
        "POST",
        "evict",
        "'{}' is unloaded until its next request",
    ),
    _command("load", "load a model before its first request", "POST", "load", "'{}' is loading"),
)
