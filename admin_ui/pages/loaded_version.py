"""A version as this server has it loaded: its config with what was completed, its instances, files
and the calls that ask it."""

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.text_format import MessageToString

from admin_ui import snapshots
from admin_ui.page_context import PageContext
from admin_ui.pages.snippets import complete, programs, talk
from admin_ui.pages.verbs import GENERATE, fields_of, sample_request, verb_of
from admin_ui.services import ControlApiError
from control.access.scopes import Action
from repository.config.read import parse
from repository.errors import RepositoryError

Row = Mapping[str, Any]


async def loaded_here(context: PageContext, name: str) -> list[dict[str, Any]]:
    """The versions of a model that this server has loaded, the highest first: `tensors` as rows,
    the completed `config`, and what a language model serves with."""
    rows = await of_gateway(context, "/instances/{model}", model=name)
    return [
        {
            "version": row["version"],
            "config": row["config"],
            "language": row["language"],
            "tensors": [
                {**one, "way": way, "batched": False}
                for way, tensors in (("input", row["inputs"]), ("output", row["outputs"]))
                for one in tensors
            ],
        }
        for row in rows
    ]


async def sequences_here(context: PageContext, name: str) -> list[Row]:
    """The versions of a sequence model as they run here, the highest first; none of any other."""
    rows = await _running(context, name)
    mine = [row for row in rows if row["sequences"] is not None]
    return sorted(mine, key=lambda row: -int(row["version"]))


async def running_here(context: PageContext, name: str, number: int) -> Row | None:
    """Backend, instances and memory of one version."""
    rows = await _running(context, name)
    return next((row for row in rows if row["version"] == number), None)


async def _running(context: PageContext, name: str) -> Sequence[Row]:
    found = await maybe_here(context, "/instances", {"model": name})
    return found["items"] if found else []


async def version_here(context: PageContext, name: str, number: int) -> dict[str, Any] | None:
    """All there is to show of a loaded version; None where it is not loaded on this server.
    `marked`: the lines of its config, each with "ins" where the server completed it."""
    loaded, running = await asyncio.gather(
        loaded_here(context, name), running_here(context, name, number)
    )
    found = next((one for one in loaded if one["version"] == number), None)
    if found is None:
        return None
    files = await maybe_here(
        context, "/instances/{model}/versions/{version}/files", model=name, version=str(number)
    )
    written = files["config"] if files else ""
    return {
        **found,
        "running": running,
        "files": files["items"] if files else None,
        "marked": marked_config(written, found["config"]),
        "calls": _calls(context, found, name, number) if context.may(Action.INFER, name) else None,
    }


def _calls(context: PageContext, found: Row, name: str, number: int) -> dict[str, Any]:
    """The calls that ask this version, to copy; a conversation asks the model by its name."""
    config = config_facts(found["config"])
    metadata = {"inputs": [one for one in found["tensors"] if one["way"] == "input"]}
    verb = verb_of(config)
    body = sample_request(verb, fields_of(metadata, config))
    gateway = context.services.gateway
    url = gateway.url if gateway else "http://127.0.0.1:8000"
    token = bool(gateway and gateway.wants_token)
    talks = found["language"].get("chat template", "none") != "none"
    made = talk if talks else complete
    return {
        "verb": verb,
        "chat": made(url, name, token) if verb == GENERATE else None,
        "talks": talks,
        **programs(url, name, f"/versions/{number}", verb, body, token),
    }


def config_facts(text: str) -> dict[str, Any]:
    """A completed config as the gateway's REST tells it; nothing of one that is cut off. Pure."""
    try:
        config = parse(text, Path(snapshots.CONFIG))
    except (RepositoryError, ValueError):
        return {}
    return dict(MessageToDict(config, preserving_proto_field_name=True))


async def of_gateway(context: PageContext, path: str, **names: str) -> Sequence[Row]:
    """What this server's gateway tells; nothing while it does not answer."""
    found = await maybe_here(context, path, None, **names)
    return found["items"] if found else []


async def maybe_here(
    context: PageContext, path: str, query: Mapping[str, str] | None = None, **names: str
) -> Any:
    """None while this server's gateway does not answer."""
    try:
        return await context.maybe(path, query, **names)
    except ControlApiError as refused:
        if refused.status != 503:
            raise
        return None


def marked_config(written: str, completed: str) -> list[tuple[str, str]]:
    """The lines of a completed config, with "ins" where config.pbtxt has none like it. Pure."""
    try:
        config = parse(written, Path(snapshots.CONFIG)) if written.strip() else None
    except (RepositoryError, ValueError):
        config = None
    before = MessageToString(config, as_utf8=True).splitlines() if config is not None else []
    after = completed.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    marked = []
    for kind, _, _, begin, end in matcher.get_opcodes():
        marked += [("" if kind == "equal" else "ins", line) for line in after[begin:end]]
    return marked
