"""`modelyard rollback MODEL`."""

import argparse

from control.rollouts.state import ENDS
from control.rollouts.views import RolloutView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, argument, whole
from server.cli.commands.output import MessageOutput, Shown
from server.cli.commands.rollouts import follow, key


def rollback(given: argparse.Namespace, api: ApiClient) -> Shown:
    """To the last healthy version, or the one that is named; at once, or by steps. Fails when that
    version cannot be loaded, and then everything is as it was."""
    plan = dict(given.plan or ())
    if given.steps:
        plan["steps"] = given.steps
    said = {"to": given.to, "plan": plan or None, "why": given.why}
    body = {name: value for name, value in said.items() if value is not None}
    view = api.call("POST", path_of("models", given.MODEL, "rollback"), RolloutView, body)
    if view.phase in ENDS:
        words = f"{view.name}: the rollout of version {view.candidate} was ended, and version "
        return MessageOutput(f"{words}{view.stable} has all traffic again", view)
    if given.no_wait:
        return MessageOutput(f"rollback {view.id} of {view.name} started: {view.reason}", view)
    given.ROLLOUT = view.id
    follow(given, api)
    ended = api.get(path_of("rollouts", view.id), RolloutView)
    return MessageOutput(f"{view.name}: version {view.candidate} has all traffic again", ended)


COMMANDS = (
    CliCommand(
        "rollback",
        "roll a model back to its last healthy version, or another; loads it first if need be",
        rollback,
        (
            argument("MODEL", "The model's name."),
            argument("--to", "The version to go back to.", type=whole),
            argument("--steps", "Growing percentages instead of all at once, e.g. 10,50."),
            argument(
                "--plan",
                "Another key of docs/rollouts.md as KEY=VALUE, e.g. --plan hold=1m; repeat it.",
                action="append",
                type=key,
            ),
            argument("--why", "For events and the audit."),
            argument("--no-wait", "Do not follow it until it ends.", action="store_true"),
        ),
    ),
)
