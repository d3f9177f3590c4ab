"""`modelyard experiment …`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from control.experiments.views import AnalysisView, ExperimentDocument, PointView
from control.views import Page
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited
from server.cli.commands.output import Columns, ListOutput, MessageOutput, RecordOutput, Shown

_COLUMNS: Columns = {
    "experiment": "name",
    "route": "route",
    "state": "state",
    "arms": lambda item: [arm.name for arm in item.arms],
    "metrics": lambda item: [metric.name for metric in item.metrics],
    "started": "started_at",
    "decision": lambda item: item.conclusion and item.conclusion.decision,
}

_POINT_COLUMNS: Columns = {
    "at": "at",
    "units": "units",
    "estimate": "estimate",
    "lower": "lower",
    "upper": "upper",
    "decision": "decision",
}


def list_experiments(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"route": given.route, "state": given.state}
    return ListOutput(
        list(api.items("/experiments", ExperimentDocument, given.limit, **filters)), _COLUMNS
    )


def create(given: argparse.Namespace, api: ApiClient) -> Shown:
    terms = _read(given.terms) if given.terms else {}
    if given.metric:
        terms["metrics"] = [*terms.get("metrics", ()), *given.metric]
    body = {**terms, "name": given.NAME, "route": given.route}
    if given.horizon is not None:
        body["horizon"] = given.horizon
    view = api.call("POST", "/experiments", ExperimentDocument, body)
    return MessageOutput(
        f"experiment {view.name} on {view.route} planned; "
        f"`modelyard experiment start {view.name}` begins it",
        view,
    )


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("experiments", given.NAME), ExperimentDocument))


def conclude(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {"decision": given.DECISION}
    path = path_of("experiments", given.NAME, "conclude")
    view = api.call("POST", path, ExperimentDocument, body)
    decision = view.conclusion.decision if view.conclusion else ""
    return MessageOutput(f"experiment {view.name} concluded: {decision}", view)


def delete(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("experiments", given.NAME))
    return MessageOutput(f"experiment {given.NAME} deleted")


def analyse(given: argparse.Namespace, api: ApiClient) -> Shown:
    """The verdict, then each comparison, in words."""
    found = api.get(path_of("experiments", given.NAME, "analysis"), AnalysisView)
    units = ", ".join(f"{arm} {count:,}" for arm, count in found.units.items())
    lines = [found.verdict, f"units: {units} ({found.progress:.0%} of the plan)"]
    return MessageOutput("\n".join(lines + [one.sentence for one in found.comparisons]), found)


def series(given: argparse.Namespace, api: ApiClient) -> Shown:
    path = path_of("experiments", given.NAME, "series")
    found = api.get(path, Page[PointView], metric=given.METRIC, arm=given.ARM)
    return ListOutput(found.items, _POINT_COLUMNS)


def metric(text: str) -> dict[str, Any]:
    """ "conversion=proportion:up:0.01", "latency=quantile:down:0.1:0.95" → a metric."""
    name, _, rest = text.partition("=")
    parts = rest.split(":")
    try:
        found: dict[str, Any] = {"name": name, "kind": parts[0], "direction": parts[1]}
        found["minimal_effect"] = float(parts[2])
        if len(parts) > 3:
            found["quantile"] = float(parts[3])
        if len(parts) <= 4:
            return found
    except (IndexError, ValueError):
        pass
    raise argparse.ArgumentTypeError(
        f"'{text}' is no metric; give NAME=KIND:DIRECTION:EFFECT, "
        "e.g. conversion=proportion:up:0.01 or latency=quantile:down:0.1:0.95"
    )


def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text())
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandFailed(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandFailed(f"{path} must hold a JSON object with the experiment's terms")
    return found


def _telling(word: str) -> Callable[[argparse.Namespace, ApiClient], Shown]:
    def tell(given: argparse.Namespace, api: ApiClient) -> Shown:
        view = api.call("POST", path_of("experiments", given.NAME, word), ExperimentDocument)
        return MessageOutput(f"experiment {view.name} is {view.state}", view)

    return tell


_NAME = argument("NAME", "The experiment's name.")

COMMANDS = (
    CliCommand(
        "experiment list",
        "list experiments, newest first",
        list_experiments,
        (
            argument("--route", "Only those on this route."),
            argument("--state", "Only those in this state, e.g. running."),
            limited(),
        ),
    ),
    CliCommand(
        "experiment create",
        "plan an experiment on the arms of a route",
        create,
        (
            _NAME,
            argument("--route", "The route whose arms are compared.", required=True),
            argument(
                "--metric",
                "What is measured as NAME=KIND:DIRECTION:EFFECT, e.g. "
                "conversion=proportion:up:0.01 or latency=quantile:down:0.1:0.95; repeat it.",
                action="append",
                type=metric,
            ),
            argument("--horizon", "Units planned for, of all arms.", type=int),
            argument("--terms", "A JSON file with all keys of docs/experiments.md."),
        ),
    ),
    CliCommand("experiment show", "show an experiment", show, (_NAME,)),
    CliCommand(
        "experiment start",
        "start an experiment: units count from now on",
        _telling("start"),
        (_NAME,),
    ),
    CliCommand(
        "experiment stop", "stop an experiment: no new units count", _telling("stop"), (_NAME,)
    ),
    CliCommand(
        "experiment conclude",
        "conclude an experiment and record the decision",
        conclude,
        (_NAME, argument("DECISION", "What was decided, in words.")),
    ),
    CliCommand(
        "experiment delete", "delete an experiment that was never started", delete, (_NAME,)
    ),
    CliCommand("experiment analysis", "show the analysis so far, in words", analyse, (_NAME,)),
    CliCommand(
        "experiment series",
        "list how an interval went over time",
        series,
        (
            _NAME,
            argument("METRIC", "Which metric."),
            argument("ARM", "Which arm against the control."),
        ),
    ),
)
