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


async def load_all(visit: PageContext) -> ScreenContent:
    rows, server = await asyncio.gather(visit.every("/repositories"), visit.get("/server"))
    keys = {"name": lambda row: row["name"], "created": lambda row: row["created_at"]}
    shown = table(visit, rows, keys, "name", lambda row: row["name"])
    return ScreenContent({"items": list(shown.rows)}, table=shown, git_url=server["git_url"])


async def load(visit: PageContext) -> ScreenContent:
    name = visit.path["repository"]
    paging = {"limit": str(COMMITS)}
    if visit.query.get("cursor"):
        paging["cursor"] = visit.query["cursor"]
    repository, server = await asyncio.gather(
        visit.get(PATH, repository=name), visit.get("/server")
    )
    commits, problem = await _commits(visit, name, paging)
    models = await visit.maybe("/models", {"repository": name, "limit": "500"})
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
        more=with_query(visit.at, {"cursor": commits["next"]}) if commits["next"] else "",
        deployed=deployed,
        formats=[(one, one in RISKY_FORMATS) for one in FORMATS],
        signings=[str(one) for one in Signing],
        budgets=_BUDGETS,
        save=link(PATH + "/settings", repository=name),
        deploy=link(PATH + "/deploy", repository=name),
        delete=link(PATH + "/delete", repository=name),
    )


async def _commits(visit: PageContext, name: str, paging: dict[str, str]) -> tuple[Any, str]:
    """The deploy ref's history; none, and why, when git cannot tell."""
    try:
        return await visit.get(PATH + "/commits", paging, repository=name), ""
    except ControlApiError as refused:
        return {"items": [], "next": None}, refused.message


async def create(visit: PageContext) -> str:
    name = visit.form.get("name", "").strip()
    if not name:
        raise ControlApiError(422, "invalid", "a repository needs a name, e.g. vision", "name")
    ref = visit.form.get("deploy_ref", "").strip()
    body = {"name": name, "settings": {"deploy_ref": ref} if ref else {}}
    await visit.change("POST", "/repositories", body)
    return link(PATH, repository=name)


async def save(visit: PageContext) -> str:
    name = visit.path["repository"]
    keys = visit.form.get("trusted_keys", "").replace("\r\n", "\n")
    settings = {
        "deploy_ref": visit.form.get("deploy_ref", "").strip(),
        "signing": visit.form.get("signing", "off"),
        "network": visit.form.get("network", "false") == "true",
        "formats": visit.several("formats"),
        "trusted_keys": _keys(keys),
        "budgets": {budget: whole(visit, budget) for budget in _BUDGETS},
    }
    expected = whole(visit, "revision")
    try:
        await visit.change("PATCH", PATH, {"settings": settings}, expected, repository=name)
    except ControlApiError as refused:
        last = refused.field.rpartition(".")[2]
        raise beside(refused, {refused.field: last}) from refused
    return link(PATH, repository=name)


def _keys(text: str) -> list[str]:
    """PEM blocks, one after the other."""
    end = "-----END"
    parts = text.strip().split("-----BEGIN")
    return [f"-----BEGIN{part.strip()}\n" for part in parts if end in part or part.strip()]


async def deploy(visit: PageContext) -> str:
    name, commit = visit.path["repository"], visit.form.get("commit", "").strip()
    if not commit:
        raise ControlApiError(422, "invalid", "say which commit, e.g. 1f0c2ab", "commit")
    found = await visit.change("POST", PATH + "/deploy", {"commit": commit}, repository=name)
    return link("/pushes/{push}", push=found.document["id"])


async def delete(visit: PageContext) -> str:
    await visit.change("DELETE", PATH, repository=visit.path["repository"])
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
