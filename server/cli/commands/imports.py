"""`modelyard import` and `modelyard imports …`."""

import argparse

from control.import_states import ENDS, ImportState
from control.views import ImportView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited, whole
from server.cli.commands.follow import follow
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    plain,
)

_UNITS = ("B", "kB", "MB", "GB", "TB")
_COLUMNS: Columns = {
    "id": "id",
    "model": "model",
    "version": lambda item: list(item.versions) or item.version,
    "state": "state",
    "fetched": lambda item: amount(item.progress.bytes_done),
    "by": "by",
    "created": "created_at",
    "url": "url",
}


class ImportNotServed(CommandFailed):
    """An import that was followed has ended otherwise."""


def import_(given: argparse.Namespace, api: ApiClient) -> Shown:
    wish = {
        "url": given.URL,
        "model": given.model,
        "version": given.version,
        "digest": given.digest,
    }
    body = {name: value for name, value in wish.items() if value is not None}
    view = api.call("POST", "/imports", ImportView, body)
    if not given.follow:
        sentence = f"import {view.id} started; see modelyard imports show {view.id}"
        return MessageOutput(sentence, view)
    path = path_of("imports", view.id)
    view = follow(lambda: api.get(path, ImportView), line, lambda one: one.state in ENDS)
    if view.state is not ImportState.SERVED:
        raise ImportNotServed(f"import {view.id} {view.state}: {plain(view.reason) or 'ended'}")
    versions = ", ".join(view.versions)
    return MessageOutput(f"served: {view.model} version {versions}, {view.digest}", view)


def list_imports(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"model": given.model, "state": given.state}
    return ListOutput(list(api.items("/imports", ImportView, given.limit, **filters)), _COLUMNS)


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("imports", given.ID), ImportView))


def cancel(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("imports", given.ID, "cancel"), ImportView)
    return MessageOutput(f"import {view.id} of {view.model} cancelled", view)


def line(view: ImportView, on_terminal: bool) -> str:
    """How far an import is, in one line: bytes and files on a terminal."""
    if view.state is not ImportState.FETCHING or not on_terminal:
        return str(view.state)
    progress = view.progress
    done, total = progress.bytes_done, progress.bytes_total
    share = f" of {amount(total)} ({done * 100 // max(total, 1)} %)" if total is not None else ""
    files = f", file {min(progress.files_done + 1, progress.files_total)} of {progress.files_total}"
    return f"fetching: {amount(done)}{share}, {amount(progress.bytes_per_s)}/s{files}"


def amount(size: float) -> str:
    """Bytes for people: "1.5 GB"."""
    left, unit = float(size), 0
    while left >= 1000 and unit < len(_UNITS) - 1:
        left, unit = left / 1000, unit + 1
    return f"{left:.1f} {_UNITS[unit]}" if unit else f"{left:.0f} B"


_ID = argument("ID", "The import's id.")
_MODEL = argument("--model", "Only of this model.")

COMMANDS = (
    CliCommand(
        "import",
        "import a model from a URL",
        import_,
        (
            argument(
                "URL",
                "https://, hf://OWNER/NAME, s3:// or gs://; an archive, an artefact, or a folder.",
            ),
            argument("--model", "The name it is served by.", required=True),
            argument("--version", "Its number. [the next one]", type=whole),
            argument("--digest", "What must arrive: sha256: and 64 hexadecimal digits."),
            argument(
                "--follow", "Wait until it is served, and say how far it is.", action="store_true"
            ),
        ),
    ),
    CliCommand(
        "imports list",
        "list imports, newest first",
        list_imports,
        (_MODEL, argument("--state", "Only in this state, e.g. fetching."), limited()),
    ),
    CliCommand("imports show", "show an import: how far it is, and how it ended", show, (_ID,)),
    CliCommand("imports cancel", "cancel an import that is not deployed yet", cancel, (_ID,)),
)
