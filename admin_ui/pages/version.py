"""One version: where it came from, what was checked, its files, its tensors, its loads."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from admin_ui import snapshots
from admin_ui.page_context import PageContext
from admin_ui.pages import model as model_page
from admin_ui.pages.loaded_version import version_here
from admin_ui.pages.rollback import rolled_back_version
from admin_ui.pages.steps import steps_here
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.traffic.load import next_look_s, version_traffic
from repository.config.generation_defaults import FILE, effective
from repository.config.read import parse
from repository.config.type_names import NAMES
from repository.errors import RepositoryError
from repository.model import ModelConfig
from repository.snapshots.digest import FileEntry

PATH = "/models/{model}/versions/{version}"
MOST_FILES = 500
_EVENTS = 500
_LOGGED = "load.*,model.failing,model.degraded,model.recovered"


async def load(context: PageContext) -> ScreenContent:
    """Of a pushed version what is stored, of any what this server has loaded."""
    name, number = context.path["model"], context.path["version"]
    about = {"newest": "true", "limit": str(_EVENTS), "subject": f"model:{name}", "kind": _LOGGED}
    stored, loads, events, traffic = await asyncio.gather(
        context.maybe(PATH, model=name, version=number),
        context.every("/loads", {"model": name}),
        context.get("/events", about),
        version_traffic(context, name, number),
    )
    states = [row for row in loads if str(row["version"]) == number]
    if stored is None and not states:
        raise ControlApiError(
            404, "not_found", f"there is no version {number[:20]} of '{name[:150]}'"
        )
    version = int(number)
    here = await version_here(context, name, version)
    files, tensors, sampling = await _stored_facts(context, stored, name)
    if here is not None:
        files = here["files"] if stored is None else files
        tensors = here["tensors"]
        running = here["running"]
        sampling = sampling or (running["sampling"] if running else {})
    return ScreenContent(
        stored or {"model": name, "version": version, "states": states},
        title=f"{name} version {version}",
        name=name,
        number=version,
        version=stored,
        states=stored["states"] if stored else states,
        here=here,
        files=None if files is None else files[:MOST_FILES],
        more_files=0 if files is None else max(0, len(files) - MOST_FILES),
        tensors=tensors,
        sampling=sampling,
        traffic=traffic,
        next_look_s=next_look_s(traffic, here is not None),
        steps=await steps_here(context, name, version) if here is not None else None,
        log=[one for one in events["items"] if one["data"].get("version") == version],
        model_path=model_page.PATH,
        lost=await rolled_back_version(context, name, version),
    )


async def _stored_facts(
    context: PageContext, stored: Any, name: str
) -> tuple[list[Any] | None, list[dict[str, Any]], dict[str, float]]:
    if stored is None:
        return None, [], {}
    root = context.services.snapshots
    return await to_thread.run_sync(_looked_up, root, stored["snapshot"], name, stored["version"])


def _looked_up(
    root: Path, digest: str, model: str, number: int
) -> tuple[list[FileEntry] | None, list[dict[str, Any]], dict[str, float]]:
    there = snapshots.files(root, digest)
    if there is None:
        return None, [], {}
    written = snapshots.config(root, digest, model) or ""
    path = f"{number}/{FILE}"
    generation = snapshots.text(root, digest, model, path) if _has(there, path) else ""
    return own_files(there, number), signature(written), sampling_of(written, generation)


def _has(files: Sequence[FileEntry], path: str) -> bool:
    return any(file.path == path for file in files)


def sampling_of(written: str, generation: str | None) -> dict[str, float]:
    """A language model's sampling defaults, of its config and its generation_config.json; none
    where these cannot be read, which the checks before the version was accepted say. Pure."""
    try:
        config = parse(written, Path(snapshots.CONFIG)) if written.strip() else ModelConfig()
        values = json.loads(generation or "{}")
        if config.backend not in ("", "llm") or not isinstance(values, dict):
            return {}
        given = {name: one.string_value for name, one in config.parameters.items()}
        return effective(values, given if config.backend == "llm" else {})
    except (RepositoryError, ValueError, RecursionError):
        return {}


def own_files(files: Sequence[FileEntry], number: int) -> list[FileEntry]:
    """The version's own, then what lies beside the versions and is shared. Pure."""
    mine = [file for file in files if file.path.startswith(f"{number}/")]
    shared = [file for file in files if not file.path.partition("/")[0].isdigit()]
    return mine + shared


def signature(written: str) -> list[dict[str, Any]]:
    """Inputs and outputs as the config says them; none when the artefact alone knows. Pure."""
    if not written.strip():
        return []
    try:
        config = parse(written, Path(snapshots.CONFIG))
    except (RepositoryError, ValueError):
        return []
    return [
        {
            "way": way,
            "name": one.name,
            "datatype": NAMES.get(one.data_type, "?"),
            "shape": list(one.dims),
            "batched": config.max_batch_size > 0,
        }
        for way, tensors in (("input", config.input), ("output", config.output))
        for one in tensors
    ]


SCREENS = (
    Screen(
        path=PATH,
        title="Version",
        template="version.html",
        load=load,
        under="/models",
        live=("load.*", "model.*", "alias.*"),
        live_every_s=10.0,
        about=lambda path: f"model:{path['model']},alias:{path['model']}@*",
    ),
)
ACTS: tuple[FormAction, ...] = ()
