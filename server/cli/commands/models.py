"""`modelyard model …`, `modelyard version …` and `modelyard alias …`."""

import argparse

import msgspec

from control.series.step_views import EnsembleStepsView, EnsembleStepView
from control.views import AliasView, ModelView, VersionOfModel, VersionView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited, whole
from server.cli.commands.in_force import unready
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    pending_text,
)

_SHORT = 10
_NONE_DEPLOYED = (
    "none from git; POST /v2/repository/index at the REST port lists those in folders as well"
)
_MODEL_COLUMNS: Columns = {
    "name": "name",
    "repository": "repository",
    "commit": lambda item: item.commit[:_SHORT],
    "versions": lambda item: [_version_text(one) for one in item.versions],
    "aliases": lambda item: [f"{name}={number}" for name, number in item.aliases.items()],
    "deployed": "deployed_at",
}
_ALIAS_COLUMNS: Columns = {
    "model": "model",
    "alias": "name",
    "version": "version",
    "moved": "updated_at",
    "by": "updated_by",
    "pending": pending_text,
}


_STEP_COLUMNS: Columns = {
    "step": "number",
    "calls": "model",
    "runs": lambda item: _when(item),
    "calls/s": lambda item: item.figures.calls_per_s,
    "a request": lambda item: item.figures.calls_per_request,
    "skipped": lambda item: _percent(item.figures.skipped_share),
    "failed": lambda item: item.figures.failed,
    "p50 ms": lambda item: item.figures.latency_ms_p50,
    "p95 ms": lambda item: item.figures.latency_ms_p95,
    "queue ms": lambda item: item.figures.queue_ms,
}


class _VersionInstances(msgspec.Struct):
    version: int


class _ModelInstances(msgspec.Struct):
    """The part of the API's answer that is asked for here: the highest first."""

    items: list[_VersionInstances]


def list_models(given: argparse.Namespace, api: ApiClient) -> Shown:
    found = list(api.items("/models", ModelView, given.limit, repository=given.repo))
    return ListOutput(found, _MODEL_COLUMNS, _NONE_DEPLOYED)


def show_model(given: argparse.Namespace, api: ApiClient) -> Shown:
    """With what is pending of its aliases beside what the API says of the model."""
    found = api.get(path_of("models", given.MODEL), ModelView)
    aliases = api.items(path_of("models", given.MODEL, "aliases"), AliasView)
    pending = {one.name: pending_text(one) for one in aliases if one.pending}
    return RecordOutput({**msgspec.structs.asdict(found), "pending": pending})


def list_steps(given: argparse.Namespace, api: ApiClient) -> Shown:
    """Of the highest version that is loaded, unless one is named."""
    number = given.version
    if number is None:
        loaded = api.get(path_of("instances", given.MODEL), _ModelInstances).items
        if not loaded:
            raise CommandFailed(f"'{given.MODEL}' is not loaded on this server")
        number = loaded[0].version
    path = path_of("instances", given.MODEL, "versions", number, "steps")
    return ListOutput(api.get(path, EnsembleStepsView, since=given.since).steps, _STEP_COLUMNS)


def _when(step: EnsembleStepView) -> str:
    parts = [f"if {step.condition}"] if step.condition else []
    return ", ".join([*parts, *([f"for each of {step.mapped}"] if step.mapped else [])]) or "always"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:.3g} %"


def show_version(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(
        api.get(path_of("models", given.MODEL, "versions", given.VERSION), VersionView)
    )


def list_aliases(given: argparse.Namespace, api: ApiClient) -> Shown:
    path = path_of("models", given.MODEL, "aliases") if given.MODEL else "/aliases"
    return ListOutput(list(api.items(path, AliasView)), _ALIAS_COLUMNS)


def set_alias(given: argparse.Namespace, api: ApiClient) -> Shown:
    headers = {} if given.only_from is None else _held_against(given, api)
    path = path_of("models", given.MODEL, "aliases", given.ALIAS)
    made = api.call("PUT", path, AliasView, {"version": given.VERSION}, headers)
    pending = unready(api, [(made.model, made.version)], "alias")
    return MessageOutput(f"{made.model}@{made.name} is version {made.version}{pending}", made)


def delete_alias(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("models", given.MODEL, "aliases", given.ALIAS))
    return MessageOutput(f"alias {given.MODEL}@{given.ALIAS} deleted")


def _held_against(given: argparse.Namespace, api: ApiClient) -> dict[str, str]:
    """Headers that let the change pass only if the alias still stands where it is thought to."""
    if given.only_from == 0:
        return {"If-None-Match": "*"}
    found, etag = api.get_with_etag(
        path_of("models", given.MODEL, "aliases", given.ALIAS), AliasView
    )
    if found.version != given.only_from:
        name = f"{given.MODEL}@{given.ALIAS}"
        raise AliasConflict(
            f"{name} is version {found.version}, not {given.only_from}; nothing changed"
        )
    return {"If-Match": etag}


class AliasConflict(CommandFailed):
    """An alias stands elsewhere than was thought."""


def _version_text(one: VersionOfModel) -> str:
    ready = any(state.state == "READY" for state in one.states)
    return f"{one.version}{'*' if ready else ''}"


_MODEL = argument("MODEL", "The model's name.")
_ALIAS = argument("ALIAS", "The alias, e.g. champion.")

COMMANDS = (
    CliCommand(
        "model list",
        "list models deployed from git; * marks versions that are ready",
        list_models,
        (argument("--repo", "Only of this repository."), limited()),
    ),
    CliCommand("model show", "show a model, its versions and their states", show_model, (_MODEL,)),
    CliCommand(
        "model steps",
        "list the steps of a loaded ensemble with what each did in the last hour",
        list_steps,
        (
            _MODEL,
            argument(
                "--version", "Its number; the highest that is loaded if not given.", type=whole
            ),
            argument("--since", "From this moment on, e.g. 2026-11-24T08:00:00Z."),
        ),
    ),
    CliCommand(
        "version show",
        "show a version's provenance, checks and states",
        show_version,
        (_MODEL, argument("VERSION", "Its number.", type=whole)),
    ),
    CliCommand(
        "alias list",
        "list the aliases of a model, or of all",
        list_aliases,
        (argument("MODEL", "The model's name; all if not given.", nargs="?"),),
    ),
    CliCommand(
        "alias set",
        "create an alias or move it to another version",
        set_alias,
        (
            _MODEL,
            _ALIAS,
            argument("VERSION", "The version it is to stand for.", type=whole),
            argument(
                "--only-from",
                "Only if it stands for this version now; 0: only if there is none yet.",
                type=whole,
            ),
        ),
    ),
    CliCommand("alias delete", "delete an alias", delete_alias, (_MODEL, _ALIAS)),
)
