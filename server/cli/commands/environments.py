"""`modelyard environment …`: Python environments of models, in the state folder."""

import argparse
from datetime import UTC, datetime

import msgspec

from backends.environments.store import EnvironmentStore, KeptEnvironment
from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand, CommandFailed, argument
from server.cli.commands.output import Columns, ListOutput, MessageOutput, Shown
from server.cli.commands.state_folder import settings_of


class EnvironmentNotRemoved(CommandFailed):
    """It is not there, or in use."""


class EnvironmentView(msgspec.Struct, frozen=True):
    """One environment, as `environment list` shows it; times in UTC."""

    digest: str
    made_of: str
    made_at: datetime
    used_at: datetime
    size_bytes: int
    in_use: bool


_COLUMNS: Columns = {
    "digest": lambda one: one.digest[:12],
    "made of": "made_of",
    "used": "used_at",
    "MiB": lambda one: one.size_bytes >> 20,
    "in use": lambda one: "yes" if one.in_use else "no",
}


def list_environments(given: argparse.Namespace, _: ApiClient) -> Shown:
    return ListOutput([_view(one) for one in _store(given).kept()], _COLUMNS)


def remove(given: argparse.Namespace, _: ApiClient) -> Shown:
    store = _store(given)
    found = [one for one in store.digests() if given.DIGEST and one.startswith(given.DIGEST)]
    if len(found) != 1:
        count = "no environment has" if not found else f"{len(found)} environments have"
        raise EnvironmentNotRemoved(
            f"{count} a digest that begins with '{given.DIGEST}'; `modelyard environment list` "
            "shows them"
        )
    if not store.forget(found[0]):
        raise EnvironmentNotRemoved(
            f"environment {found[0][:12]} is used by a loaded model; unload that first"
        )
    return MessageOutput(f"environment {found[0][:12]} removed")


def _store(given: argparse.Namespace) -> EnvironmentStore:
    settings = settings_of(given)
    folder = settings.state_dir.absolute() / "environments"
    return EnvironmentStore(folder, settings.environment_cache_limit)


def _view(one: KeptEnvironment) -> EnvironmentView:
    made, used = (datetime.fromtimestamp(at, UTC) for at in (one.made_at, one.used_at))
    return EnvironmentView(one.digest, one.made_of, made, used, one.size_bytes, one.in_use)


COMMANDS = (
    CliCommand(
        "environment list",
        "list the Python environments kept for models, the one used last first",
        list_environments,
        alone=True,
    ),
    CliCommand(
        "environment remove",
        "remove an environment and the versions chosen for it: the next load chooses anew",
        remove,
        (argument("DIGEST", "The beginning of its digest."),),
        alone=True,
    ),
)
