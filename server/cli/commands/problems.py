"""`modelyard problem …` and `modelyard ack`."""

import argparse

from control.problems.views import ProblemView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, argument, limited
from server.cli.commands.output import Columns, ListOutput, MessageOutput, Shown

_COLUMNS: Columns = {
    "key": "key",
    "since": "since",
    "problem": "title",
    "reason": "reason",
    "acknowledged": lambda item: _noted(item),
}


def list_problems(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/problems", ProblemView, given.limit)), _COLUMNS)


def acknowledge(given: argparse.Namespace, api: ApiClient) -> Shown:
    path = path_of("problems", given.KEY, "acknowledgement")
    made = api.call("PUT", path, ProblemView, {"note": given.NOTE})
    return MessageOutput(f"acknowledged: {made.title}", made)


def take_back(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("problems", given.KEY, "acknowledgement"))
    return MessageOutput(f"{given.KEY} is not acknowledged any more")


def _noted(one: ProblemView) -> str:
    return "-" if one.acknowledged is None else f"{one.acknowledged.by}: {one.acknowledged.note}"


_KEY = argument("KEY", "The problem's key, from `modelyard problem list`.")
COMMANDS = (
    CliCommand(
        "problem list", "list what is wrong now, the worst first", list_problems, (limited(),)
    ),
    CliCommand(
        "ack",
        "acknowledge a problem: it folds until it has another reason, or passes and begins anew",
        acknowledge,
        (_KEY, argument("NOTE", "What is known of it, or done about it.", nargs="?", default="")),
    ),
    CliCommand("unack", "take an acknowledgement back", take_back, (_KEY,)),
)
