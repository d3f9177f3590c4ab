"""`modelyard pipeline …`: the steps that a push declares for a version, one job after the other."""

import argparse

from control.jobs.policy.pipelines import PipelineState
from control.pipelines.views import PipelineStepView, PipelineView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, argument, limited
from server.cli.commands.output import Columns, ListOutput, MessageOutput, Shown, plain

_COLUMNS: Columns = {
    "id": "id",
    "model": lambda one: f"{one.model}/{one.version}",
    "state": "state",
    "step": lambda one: f"{one.step} of {len(one.steps)}",
    "now": lambda one: one.steps[one.step - 1].type,
    "by": "by",
    "created": "created_at",
}


def list_pipelines(given: argparse.Namespace, api: ApiClient) -> Shown:
    filters = {"model": given.model, "state": given.state}
    return ListOutput(list(api.items("/pipelines", PipelineView, given.limit, **filters)), _COLUMNS)


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.get(path_of("pipelines", given.ID), PipelineView)
    return MessageOutput("", view, result="\n".join(map(plain, lines_of(view))))


def cancel(given: argparse.Namespace, api: ApiClient) -> Shown:
    view = api.call("POST", path_of("pipelines", given.ID, "cancel"), PipelineView)
    ended = "cancelled" if view.state is PipelineState.CANCELLED else "is being cancelled"
    return MessageOutput(f"pipeline {view.id} {ended}", view)


def lines_of(view: PipelineView) -> list[str]:
    """A pipeline for a terminal: what it is of, how it stands, and a line for each step."""
    reason = f": {view.reason}" if view.reason else ""
    first = f"pipeline {view.id} of {view.model} version {view.version}: {view.state}{reason}"
    return [first, *(_step_line(one) for one in view.steps)]


def _step_line(step: PipelineStepView) -> str:
    done = f" {step.fraction:.0%}" if step.state == "running" else ""
    made = f", {step.model} version {step.version}" if step.version else ""
    job = f", job {step.job}" if step.job else ""
    rollout = f", rollout {step.rollout}" if step.rollout else ""
    return f"  {step.number}. {step.type}: {step.state}{done}{made}{job}{rollout}"


_ID = argument("ID", "The pipeline's id.")

COMMANDS = (
    CliCommand(
        "pipeline list",
        "list pipelines of jobs that pushes have declared, newest first",
        list_pipelines,
        (
            argument("--model", "Only those of this model, which was pushed."),
            argument("--state", f"Only in this state: {', '.join(PipelineState)}."),
            limited(),
        ),
    ),
    CliCommand("pipeline show", "show a pipeline: its steps, and how far it is", show, (_ID,)),
    CliCommand(
        "pipeline cancel", "cancel a pipeline with the job that it has come to", cancel, (_ID,)
    ),
)
