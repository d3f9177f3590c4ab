"""Every command that asks a running server: parsers, places, and what happens when it fails."""

import argparse
import os
import sys
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from server.cli.commands import (
    backups,
    drift,
    environments,
    events,
    experiments,
    imports,
    infer,
    jobs,
    model_folders,
    models,
    notifications,
    pipelines,
    problems,
    repositories,
    requests,
    residency,
    rollback,
    rollouts,
    routes,
    status,
    users,
)
from server.cli.commands.client import ApiClient, RequestRejected, ServerAddress, ServerUnreachable
from server.cli.commands.colour import painted
from server.cli.commands.command import Argument, CliCommand, CommandFailed, argument
from server.cli.commands.output import ListOutput, MessageOutput, Shown, as_json, as_text
from server.cli.commands.secret_input import TOKEN_VARIABLE, read_token
from server.cli.commands.state_folder import socket_of

OK, FAILED = 0, 1
_FOLLOWING = ("event follow", "status", "logs")
"""What people end with Ctrl-C when they have seen enough."""

COMMANDS: tuple[CliCommand, ...] = (
    *model_folders.COMMANDS,
    *status.COMMANDS,
    *infer.COMMANDS,
    *problems.COMMANDS,
    *requests.COMMANDS,
    *users.COMMANDS,
    *repositories.COMMANDS,
    *models.COMMANDS,
    *routes.COMMANDS,
    *rollouts.COMMANDS,
    *residency.COMMANDS,
    *rollback.COMMANDS,
    *drift.COMMANDS,
    *experiments.COMMANDS,
    *imports.COMMANDS,
    *jobs.COMMANDS,
    *pipelines.COMMANDS,
    *environments.COMMANDS,
    *events.COMMANDS,
    *notifications.COMMANDS,
    *backups.COMMANDS,
)

GROUPS = {
    "user": "people who may log in",
    "token": "API tokens",
    "repo": "git repositories that models are pushed to",
    "push": "pushes and deployments",
    "problem": "what is wrong now",
    "model": "models deployed from git",
    "imports": "models fetched from URLs",
    "job": "offline jobs: convert, optimise, quantise, prune, distil, profile",
    "pipeline": "offline jobs in a row, which a push declares",
    "environment": "Python environments of models",
    "alias": "names for versions, which can be moved",
    "route": "public names whose requests are split between versions",
    "residency": "models that load on demand: what is loaded, and what stays",
    "rollout": "new versions promoted step by step",
    "experiment": "arms of a route, compared by feedback",
    "drift": "whether what models get and answer has changed",
    "event": "events",
    "webhook": "URLs that notifications are sent to",
    "delivery": "messages to webhooks",
    "mute": "models nobody is notified about for a while",
}

COMMON: tuple[Argument, ...] = (
    argument("--json", "Print JSON.", action="store_true"),
    argument("--state-dir", "State folder of the server to talk to, by its Unix socket."),
    argument("--url", "Talk to the server at this URL instead; needs a token."),
    argument(
        "--token-file",
        "File with the token on its first line; - for stdin. [the variable MODELYARD_TOKEN]",
    ),
)


def add_commands(commands: Any, there: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add them all to argparse's sub-parsers `commands`; groups `there` get their words added."""
    groups: dict[str, Any] = {}
    for command in COMMANDS:
        group, _, word = command.words.partition(" ")
        if not word:
            _add(commands, group, command)
            continue
        if group not in groups:
            parser = there.get(group) or _group(commands, group)
            groups[group] = parser.add_subparsers(
                title="commands", metavar="COMMAND", parser_class=type(parser)
            )
        _add(groups[group], word, command)


def _group(commands: Any, name: str) -> argparse.ArgumentParser:
    about = GROUPS[name]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=_sentence(about)
    )
    parser.set_defaults(run=partial(_help, parser))
    return parser


def _add(commands: Any, word: str, command: CliCommand) -> None:
    parser = commands.add_parser(word, help=command.meaning, description=_sentence(command.meaning))
    for one in (*command.arguments, *(COMMON[:1] if command.local else COMMON)):
        names = filter(None, (one.short, one.name))
        parser.add_argument(*names, help=one.meaning.replace("%", "%%"), **one.options)
    parser.set_defaults(run=partial(run, command))


def run(command: CliCommand, given: argparse.Namespace) -> int:
    """Ask, and show what comes back; a failure is one line on stderr."""
    try:
        api = ApiClient(ServerAddress(Path()) if _is_alone(command) else _place(given))
        _show(command.run(given, api), given.json)
        sys.stdout.flush()
    except (ServerUnreachable, RequestRejected, CommandFailed) as error:
        name = painted("modelyard:", "ERROR", sys.stderr)
        sys.stderr.write(f"{name} {error}{_hint(error, given)}\n")
        return FAILED
    except KeyboardInterrupt:
        return OK if command.words in _FOLLOWING else FAILED
    except BrokenPipeError:
        # Whoever read us has enough; nothing is left to be flushed into the broken pipe at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return OK


def _is_alone(command: CliCommand) -> bool:
    return command.alone or command.local


def _hint(error: Exception, given: argparse.Namespace) -> str:
    """How a command line gives what the API asks for in words of HTTP."""
    if not isinstance(error, RequestRejected) or error.status != HTTPStatus.UNAUTHORIZED:
        return ""
    if given.url and not given.token_file and not os.environ.get(TOKEN_VARIABLE):
        return f" (--token-file FILE, or the variable {TOKEN_VARIABLE})"
    return ""


def _place(given: argparse.Namespace) -> ServerAddress:
    token = read_token(given.token_file)
    if given.url:
        return ServerAddress(Path(), given.url, token)
    return ServerAddress(socket_of(given), "", token if given.token_file else "")


def _show(shown: Shown, json: bool) -> None:
    if isinstance(shown, MessageOutput) and shown.written:
        return
    if json:
        sys.stdout.write(as_json(shown))
    elif isinstance(shown, MessageOutput):
        if shown.sentence:
            stream = sys.stderr if shown.result else sys.stdout
            stream.write(shown.sentence + "\n")
        if shown.result:
            sys.stdout.write(shown.result + "\n")
    else:
        sys.stdout.write(as_text(shown, whole=not sys.stdout.isatty()))
        if isinstance(shown, ListOutput) and not shown.items:
            sys.stderr.write(f"({shown.empty})\n")


def _help(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    sys.stdout.write(parser.format_help())
    return OK


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
