"""Git repositories: made, set up, pushed to; their commits, any of which can be deployed."""

import asyncio
from typing import Any

from admin_ui.page_context import PageContext
from admin_ui.pages.model import beside, whole
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import table, with_query
from admin_ui.text import link
from control.repository_settings import FORMATS, RISKY_FORMATS, Signing

PATH = "/repositories/{repository}"
COMMITS = 20
_BUDGETS = ("max_pack_bytes", "max_file_bytes", "max_lfs_bytes", "max_files", "max_models")


async def load_all(context: PageContext) -> ScreenContent:
    rows, server = await asyncio.gather(context.every("/repositories"), context.get("/server"))
    keys = {"name": lambda row: row["name"], "created": lambda row: row["created_at"]}
    shown = table(context, rows, keys, "name", lambda row: row["name"])
    return ScreenContent({"items": list(shown.rows)}, table=shown, git_url=server["git_url"])


async def load(context: PageContext) -> ScreenContent:
    name = context.path["repository"]
    paging = {"limit": str(COMMITS)}
    if context.query.get("cursor"):
        paging["cursor"] = context.query["cursor"]
    repository, server = await asyncio.gather(
        context.get(PATH, repository=name), context.get("/server")
    )
    commits, problem = await _commits(context, name, paging)
    models = await context.maybe("/models", {"repository": name, "limit": "500"})
    deployed: dict[str, list[str]] = {}
    for one in (models or {"items": []})["items"]:
        if one["snapshot"] is not None:
            deployed.setdefault(one["commit"], []).append(one["name"])
    return ScreenContent(
        repository,
        title=name,
        repository=repository,
        settings=repository["settings"],
        push_url=server["git_url"].replace("{repository}", name),
        commits=commits["items"],
        problem=problem,
        more=with_query(context.at, {"cursor": commits["next"]}) if commits["next"] else "",
        deployed=deployed,
        formats=[(one, one in RISKY_FORMATS) for one in FORMATS],
        signings=[str(one) for one in Signing],
        budgets=_BUDGETS,
        save=link(PATH + "/settings", repository=name),
        deploy=link(PATH + "/deploy", repository=name),
        delete=link(PATH + "/delete", repository=name),
    )


async def _commits(context: PageContext, name: str, paging: dict[str, str]) -> tuple[Any, str]:
    """The deploy ref's history; none, and why, when git cannot tell."""
    try:
        return await context.get(PATH + "/commits", paging, repository=name), ""
    except ControlApiError as refused:
        return {"items": [], "next": None}, refused.message


async def create(context: PageContext) -> str:
    name = context.form.get("name", "").strip()
    if not name:
        raise ControlApiError(422, "invalid", "a repository needs a name, e.g. vision", "name")
    ref = context.form.get("deploy_ref", "").strip()
    body = {"name": name, "settings": {"deploy_ref": ref} if ref else {}}
    await context.change("POST", "/repositories", body)
    return link(PATH, repository=name)


async def save(context: PageContext) -> str:
    name = context.path["repository"]
    keys = context.form.get("trusted_keys", "").replace("\r\n", "\n")
    settings = {
        "deploy_ref": context.form.get("deploy_ref", "").strip(),
        "signing": context.form.get("signing", "off"),
        "network": context.form.get("network", "false") == "true",
        "formats": context.several("formats"),
        "trusted_keys": _keys(keys),
        "budgets": {budget: whole(context, budget) for budget in _BUDGETS},
    }
    expected = whole(context, "revision")
    try:
        await context.change("PATCH", PATH, {"settings": settings}, expected, repository=name)
    except ControlApiError as refused:
        last = refused.field.rpartition(".")[2]
        raise beside(refused, {refused.field: last}) from refused
    return link(PATH, repository=name)


def _keys(text: str) -> list[str]:
    """PEM blocks, one after the other."""
    end = "-----END"
    parts = text.strip().split("-----BEGIN")
    return [f"-----BEGIN{part.strip()}\n" for part in parts if end in part or part.strip()]


async def deploy(context: PageContext) -> str:
    name, commit = context.path["repository"], context.form.get("commit", "").strip()
    if not commit:
        raise ControlApiError(422, "invalid", "say which commit, e.g. 1f0c2ab", "commit")
    found = await context.change("POST", PATH + "/deploy", {"commit": commit}, repository=name)
    return link("/pushes/{push}", push=found.document["id"])


async def delete(context: PageContext) -> str:
    await context.change("DELETE", PATH, repository=context.path["repository"])
    return "/repositories"


SCREENS = (
    Screen(
        path="/repositories",
        title="Repositories",
        menu="Repositories",
        docs="git",
        template="repositories.html",
        load=load_all,
        live=("repository.*",),
    ),
    Screen(
        path=PATH,
        title="Repository",
        template="repository.html",
        load=load,
        under="/repositories",
        live=("push.*", "model.*", "repository.*"),
    ),
)
ACTS = (
    FormAction(path="/repositories", screen="/repositories", run=create),
    FormAction(path=PATH + "/settings", screen=PATH, run=save),
    FormAction(path=PATH + "/deploy", screen=PATH, run=deploy),
    FormAction(path=PATH + "/delete", screen=PATH, run=delete, typed_name="repository"),
)
