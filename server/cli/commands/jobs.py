"""`modelyard job …`: offline jobs."""

import argparse
import json
from functools import partial
from typing import Any

from control.jobs.policy.states import ENDS, JobState
from control.jobs.report import Report
from control.jobs.spec import JOB_TYPES
from control.jobs.views import JobLog, JobView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import (
    Argument,
    CliCommand,
    CommandFailed,
    argument,
    limited,
    whole,
)
from server.cli.commands.follow import follow
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    plain,
)

_BAR = 24
_COLUMNS: Columns = {
    "id": "id",
    "type": "type",
    "model": lambda job: f"{job.sources[0].model}/{job.sources[0].version}",
    "state": "state",
    "done": lambda job: f"{job.fraction:.0%}",
    "result": lambda job: result_text(job),
    "pipeline": lambda job: f"{job.pipeline} step {job.step}" if job.pipeline else "",
    "by": "by",
    "created": "created_at",
}
_MEANINGS = {
    "convert": "write a version in another format",
    "optimise": "simplify a version's graph, or store its weights in 16 bits",
    "quantise": "store and compute a version in int8",
    "quantise_llm": "store a language model's weights in 8 or 4 bits",
    "prune": "remove weights or channels of a version, and train the rest",
    "distil": "train a smaller network to answer as a version does",
    "profile": "search the settings under which a version is served best",
}


class JobNotDone(CommandFailed):
    """A job that was followed has ended otherwise."""


def create(given: argparse.Namespace, api: ApiClient) -> Shown:
    """The job that the arguments ask for; with --follow once it has ended."""
    spec = {"type": given.TYPE, "model": given.MODEL, **field_values(given.set, "--set")}
    if given.version is not None:
        spec["version"] = given.version
    if given.result_model is not None:
        spec["result_model"] = given.result_model
    body: dict[str, Any] = {"spec": spec, "limits": field_values(given.limit, "--limit")}
    body |= {name: value for name in ("priority", "queue") if (value := getattr(given, name))}
    view = api.call("POST", "/jobs", JobView, body)
    if not given.follow:
        return MessageOutput(f"job {view.id} waits; see modelyard job show {view.id}", view)
    path = path_of("jobs", view.id)
    view = follow(lambda: api.get(path, JobView), line, lambda one: one.state in ENDS)
    if view.state is not JobState.DONE:
        raise JobNotDone(f"job {view.id} {view.state}: {plain(view.reason) or 'ended'}")
    made = f"{result_text(view)}, " if view.result.version else ""
    return MessageOutput(f"done: {made}see modelyard job report {view.id}", view)


def _create_typed(kind: str, given: argparse.Namespace, api: ApiClient) -> Shown:
    given.TYPE = kind
    return create(given, api)


def list_jobs(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"model": given.model, "state": given.state, "type": given.type}
    return ListOutput(list(api.items("/jobs", JobView, given.limit, **filters)), _COLUMNS)


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get(path_of("jobs", given.ID), JobView))


def log(given: argparse.Namespace, api: ApiClient) -> Shown:
    found = api.get(path_of("jobs", given.ID, "log"), JobLog)
    lines = "\n".join(map(plain, found.text.splitlines()))
    return MessageOutput("", found, result=lines)


def report(given: argparse.Namespace, api: ApiClient) -> Shown:
    found = api.get(path_of("jobs", given.ID, "report"), Report)
    return MessageOutput("", found, result="\n".join(map(plain, report_lines(found))))


def cancel(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("jobs", given.ID, "cancel"), JobView)
    ended = "cancelled" if view.state is JobState.CANCELLED else "is being cancelled"
    return MessageOutput(f"job {view.id} {ended}", view)


def retry(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("jobs", given.ID, "retry"), JobView)
    return MessageOutput(f"job {view.id} waits again", view)


def result_text(view: JobView) -> str:
    """What the job has made, or is to make: "digits-int8 version 1"."""
    made = view.result
    return f"{made.model} version {made.version}" if made.version else made.model


def line(view: JobView, bar: bool) -> str:
    """How far a job is, in one line; with a bar on a terminal."""
    if view.state is not JobState.RUNNING:
        return f"{view.state}: {plain(view.reason)}" if view.reason else str(view.state)
    full = round(view.fraction * _BAR)
    drawn = f"[{'#' * full}{'-' * (_BAR - full)}] " if bar else ""
    return f"{drawn}{view.fraction:4.0%} {plain(view.progress)}".rstrip()


def report_lines(found: Report) -> list[str]:
    """A report for a terminal: verdict, reasons, warnings, figures; tables and plots are JSON's."""
    lines = [f"{found.title}: {found.verdict}", *found.reasons]
    lines += [f"warning: {one}" for one in found.warnings]
    for one in found.figures:
        change = f"{_number(one.before)} -> {_number(one.after)} {one.unit}".rstrip()
        lines.append(f"{one.name}: {change}")
    if found.config:
        lines += ["config:", *found.config.splitlines()]
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def field_values(texts: list[str] | None, flag: str) -> dict[str, Any]:
    """ "floor=0.98" as {"floor": 0.98}: a value is JSON, or else text."""
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandFailed(f"{flag} takes FIELD=VALUE, got '{text}'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


_ID = argument("ID", "The job's id.")
_MODEL = argument("MODEL", "The model to work on.")
_TERMS: tuple[Argument, ...] = (
    argument("--version", "The version to work on. [the highest that is ready]", type=whole),
    argument("--result-model", "The model that gets the result."),
    argument(
        "--set",
        "A field of the type, as FIELD=VALUE, e.g. floor=0.98; may be repeated. docs/jobs.md.",
        action="append",
        metavar="FIELD=VALUE",
    ),
    argument(
        "--limit",
        "The most that an attempt may take, e.g. memory_bytes=8589934592; may be repeated.",
        action="append",
        metavar="LIMIT=VALUE",
    ),
    argument("--priority", "The higher, the sooner. [0]", type=whole),
    argument("--queue", "The workers that may take it. [default]"),
    argument("--follow", "Wait until it has ended, and say how far it is.", action="store_true"),
)

COMMANDS = (
    CliCommand(
        "job create",
        "make an offline job of a type",
        create,
        (argument("TYPE", f"One of {', '.join(JOB_TYPES)}."), _MODEL, *_TERMS),
    ),
    *(
        CliCommand(
            f"job {kind.replace('_', '-')}",
            _MEANINGS[kind],
            partial(_create_typed, kind),
            (_MODEL, *_TERMS),
        )
        for kind in JOB_TYPES
    ),
    CliCommand(
        "job list",
        "list jobs, newest first",
        list_jobs,
        (
            argument("--model", "Only those that work on this model, or make a version of it."),
            argument("--state", f"Only in this state: {', '.join(JobState)}."),
            argument("--type", f"Only of this type: {', '.join(JOB_TYPES)}."),
            limited(),
        ),
    ),
    CliCommand("job show", "show a job: how far it is, and how it ended", show, (_ID,)),
    CliCommand("job log", "show the end of what a job printed", log, (_ID,)),
    CliCommand("job report", "show what a job found; all of it with --json", report, (_ID,)),
    CliCommand("job cancel", "cancel a job that has not ended yet", cancel, (_ID,)),
    CliCommand("job retry", "try a job again that has failed or was cancelled", retry, (_ID,)),
)
