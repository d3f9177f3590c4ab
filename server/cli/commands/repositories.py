"""`modelyard repo …`, `modelyard push …` and `modelyard push-url`."""

import argparse
from pathlib import Path
from typing import Any

from control.views import CommitView, PushView, RepositoryView, ThisServerView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, argument, limited
from server.cli.commands.output import Columns, Json, ListOutput, MessageOutput, RecordOutput, Shown
from server.cli.commands.secret_input import UnreadableSecret

_SHORT = 10
_REPOSITORY_COLUMNS: Columns = {
    "name": "name",
    "deploy ref": "deploy_ref",
    "signing": lambda item: item.settings.signing,
    "created": "created_at",
}
_PUSH_COLUMNS: Columns = {
    "id": "id",
    "repository": "repository",
    "kind": "kind",
    "ref": "ref",
    "commit": lambda item: item.new_commit[:_SHORT],
    "pusher": "pusher",
    "state": "state",
    "received": "received_at",
    "subject": "subject",
}
_COMMIT_COLUMNS: Columns = {
    "commit": lambda item: item.commit[:_SHORT],
    "at": "at",
    "author": "author",
    "subject": "subject",
}


def list_repositories(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/repositories", RepositoryView)), _REPOSITORY_COLUMNS)


def create_repository(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"name": given.NAME, "settings": _settings(given)}
    made = api.call("POST", "/repositories", RepositoryView, body)
    url = _push_url(api, made.name)
    return MessageOutput(f"repository {made.name} created; push models to {url}", made)


def show_repository(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("repositories", given.NAME), RepositoryView))


def change_repository(given: argparse.Namespace, api: ApiClient) -> Shown:
    path, body = path_of("repositories", given.NAME), dict(_settings(given))
    held: dict[str, str] = {}
    if given.add_format or given.remove_format:
        if "formats" in body:
            raise UnreadableSecret(
                "--formats says all of them; leave out --add-format, --remove-format"
            )
        now, etag = api.get_with_etag(path, RepositoryView)
        body["formats"], held = _changed_formats(now, given), {"If-Match": etag}
    if not body:
        raise UnreadableSecret("nothing to change; give e.g. --add-format python")
    made = api.call("PATCH", path, RepositoryView, {"settings": body}, held)
    return MessageOutput(f"repository {made.name} changed (revision {made.revision})", made)


def _changed_formats(now: RepositoryView, given: argparse.Namespace) -> list[str]:
    """What the repository takes now, and more or less. Removing what it does not take is a slip."""
    formats: list[str] = list(now.settings.formats)
    for name in given.remove_format or ():
        if name not in formats:
            there = ", ".join(formats)
            raise UnreadableSecret(
                f"{given.NAME} does not take the format '{name}'; it takes {there}"
            )
        formats.remove(name)
    return formats + [name for name in given.add_format or () if name not in formats]


def delete_repository(given: argparse.Namespace, api: ApiClient) -> Shown:
    if not given.yes:
        raise UnreadableSecret(
            f"this deletes the commits of {given.NAME} and undeploys its models; say --yes"
        )
    api.delete(path_of("repositories", given.NAME))
    return MessageOutput(f"repository {given.NAME} deleted")


def deploy(given: argparse.Namespace, api: ApiClient) -> Shown:
    kind = "ref" if given.REVISION.startswith("refs/") else "commit"
    path = path_of("repositories", given.NAME, "deploy")
    made = api.call("POST", path, PushView, {kind: given.REVISION})
    told = f"\n{made.report}" if made.report else ""
    return MessageOutput(
        f"commit {made.new_commit[:_SHORT]} is being deployed; "
        f"follow it with `modelyard push show {made.id}`{told}",
        made,
    )


def log(given: argparse.Namespace, api: ApiClient) -> Shown:
    path = path_of("repositories", given.NAME, "commits")
    return ListOutput(
        list(api.items(path, CommitView, given.limit, ref=given.ref)), _COMMIT_COLUMNS
    )


def list_pushes(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"repository": given.repo, "state": given.state}
    return ListOutput(list(api.items("/pushes", PushView, given.limit, **filters)), _PUSH_COLUMNS)


def show_push(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("pushes", given.ID), PushView))


def push_url(given: argparse.Namespace, api: ApiClient) -> Shown:
    name = api.get(path_of("repositories", given.NAME), RepositoryView).name
    url = _push_url(api, name)
    return MessageOutput("", {"url": url}, url)


def budget(text: str) -> tuple[str, int]:
    """ "max_files=100" → its parts."""
    name, _, number = text.partition("=")
    if not (name and number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is no budget; give e.g. max_files=100")
    return name, int(number)


def _push_url(api: ApiClient, name: str) -> str:
    return api.get("/server", ThisServerView).git_url.replace("{repository}", name)


def _settings(given: argparse.Namespace) -> Json:
    settings: dict[str, Any] = {
        "deploy_ref": given.deploy_ref,
        "formats": given.formats.split(",") if given.formats else None,
        "protected": given.protect,
        "signing": given.signing,
        "network": None if given.network is None else given.network == "true",
        "trusted_keys": [_key(file) for file in given.trusted_key] if given.trusted_key else None,
        "budgets": dict(given.budget) if given.budget else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _key(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableSecret(f"the key {file} cannot be read: {error}") from error


_NAME = argument("NAME", "The repository's name.")
_SETTINGS = (
    argument("--deploy-ref", "The ref whose pushes are served. [refs/heads/main]"),
    argument("--formats", "Formats of files to accept, all of them, separated by commas."),
    argument("--protect", "A glob of refs nobody rewrites or deletes; repeat it.", action="append"),
    argument("--signing", "Whether versions need a signature.", choices=("off", "warn", "require")),
    argument(
        "--network",
        "Whether python models whose config asks for it may open connections.",
        choices=("true", "false"),
    ),
    argument("--trusted-key", "A PEM file of a key that may sign; repeat it.", action="append"),
    argument(
        "--budget",
        "A limit as NAME=NUMBER, e.g. max_files=100; repeat it for several.",
        action="append",
        type=budget,
    ),
)

COMMANDS = (
    CliCommand("repo list", "list the git repositories", list_repositories),
    CliCommand(
        "repo create",
        "create a git repository to push models to",
        create_repository,
        (_NAME, *_SETTINGS),
    ),
    CliCommand("repo show", "show a repository and its settings", show_repository, (_NAME,)),
    CliCommand(
        "repo change",
        "change a repository's settings",
        change_repository,
        (
            _NAME,
            *_SETTINGS,
            argument("--add-format", "One more format to accept; repeat it.", action="append"),
            argument("--remove-format", "A format to accept no more; repeat it.", action="append"),
        ),
    ),
    CliCommand(
        "repo delete",
        "delete a repository; its models are undeployed",
        delete_repository,
        (_NAME, argument("--yes", "Really.", action="store_true")),
    ),
    CliCommand(
        "repo deploy",
        "deploy a commit, also an older one",
        deploy,
        (_NAME, argument("REVISION", "A commit id, or a ref such as refs/tags/v3.")),
    ),
    CliCommand(
        "repo log",
        "show the history of the deploy ref",
        log,
        (_NAME, argument("--ref", "Another ref, by its whole name."), limited(20)),
    ),
    CliCommand(
        "push list",
        "list pushes and deployments, newest first",
        list_pushes,
        (
            argument("--repo", "Only to this repository."),
            argument("--state", "Only in this state, e.g. failed."),
            limited(20),
        ),
    ),
    CliCommand(
        "push show",
        "show a push: its outcome and the report to the pusher",
        show_push,
        (argument("ID", "The push's id."),),
    ),
    CliCommand("push-url", "print the URL to push a repository to", push_url, (_NAME,)),
)
