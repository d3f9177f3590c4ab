"""Search over everything that has a page: models, versions, routes, rollouts, pushes, jobs,
pipelines, users, settings, docs. The menu's pages are found by the browser, in the menu itself."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from admin_ui.event_text import PHASES
from admin_ui.page_context import PageContext
from admin_ui.pages.help import help_pages
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.text import job_type, link, who
from control.access.scopes import Action

MOST, LATEST = 40, 200
LONGEST = 100
"""Of what is searched for."""

SHORTEST_ID = 4


class SearchResult(NamedTuple):
    """A page: what it is of, its kind in a word, and something to tell it from others."""

    name: str
    kind: str
    about: str
    to: str


async def load(context: PageContext) -> ScreenContent:
    q = context.query.get("q", "").strip()[:LONGEST]
    found = ranked(await _everything(context), q)[:MOST] if q else []
    if context.may(Action.OPERATE):
        found += requests_of(q)
    return ScreenContent({"items": [one._asdict() for one in found]}, q=q, found=found)


def ranked(results: Iterable[SearchResult], q: str) -> list[SearchResult]:
    """Those that have all words of `q`, first those whose name begins with it. Pure."""
    words = q.casefold().split()
    kept = [
        one
        for one in results
        if all(word in f"{one.name} {one.kind} {one.about}".casefold() for word in words)
    ]
    return sorted(kept, key=lambda one: (_distance(one.name.casefold(), words), len(one.name)))


def requests_of(q: str) -> list[SearchResult]:
    """What may be a request's id, one word with a digit, leads to the last requests. Pure."""
    if len(q) < SHORTEST_ID or len(q.split()) != 1 or not any(map(str.isdigit, q)):
        return []
    to = f"/requests?{urlencode({'id': q})}"
    return [SearchResult(q, "request", "the last requests with this id", to)]


def _distance(name: str, words: Sequence[str]) -> int:
    first = words[0] if words else ""
    return 0 if name == first else 1 if name.startswith(first) else 2 if first in name else 3


async def _everything(context: PageContext) -> list[SearchResult]:
    (
        models,
        loads,
        routes,
        repositories,
        rollouts,
        pushes,
        experiments,
        jobs,
        pipelines,
        users,
        rows,
    ) = await asyncio.gather(
        context.every("/models"),
        context.every("/loads"),
        context.every("/routes"),
        context.every("/repositories"),
        _latest(context, "/rollouts"),
        _latest(context, "/pushes"),
        _latest(context, "/experiments"),
        _latest(context, "/jobs"),
        _latest(context, "/pipelines"),
        context.every("/users") if context.may(Action.ADMIN) else _nothing(),
        context.every("/settings") if context.may(Action.ADMIN) else _nothing(),
    )
    names = sorted({one["name"] for one in models} | {row["model"] for row in loads})
    versions = sorted({(row["model"], row["version"]) for row in loads if row["version"]})
    return [
        *(SearchResult(name, "model", "", link("/models/{model}", model=name)) for name in names),
        *(_version(name, number) for name, number in versions),
        *(_alias(one["name"], alias, to) for one in models for alias, to in one["aliases"].items()),
        *(_named("route", "/routes/{route}", "route", one["name"]) for one in routes),
        *(_named("repository", "/repositories/{it}", "it", one["name"]) for one in repositories),
        *(_named("experiment", "/experiments/{it}", "it", one["name"]) for one in experiments),
        *map(_rollout, rollouts),
        *map(_push, pushes),
        *map(_job, jobs),
        *(found for one in pipelines for found in _pipeline(one)),
        *(_named("user", "/access/users/{user}", "user", one["name"]) for one in users),
        *map(_setting, rows),
        *(SearchResult(one.title, "docs", one.name, one.to) for one in help_pages()),
    ]


async def _nothing() -> list[Any]:
    return []


async def _latest(context: PageContext, path: str) -> list[Any]:
    """One page of a list; nothing for who may not see it."""
    try:
        found = await context.maybe(path, {"limit": str(LATEST)})
    except ControlApiError as refused:
        if refused.status != 422:
            raise
        return []
    return found["items"] if found else []


def _named(kind: str, path: str, parameter: str, name: str) -> SearchResult:
    return SearchResult(name, kind, "", link(path, **{parameter: name}))


def _version(name: str, number: int) -> SearchResult:
    to = link("/models/{model}/versions/{version}", model=name, version=number)
    return SearchResult(f"{name} {number}", "version", "", to)


def _alias(model: str, alias: str, number: int) -> SearchResult:
    to = link("/models/{model}/aliases/{alias}", model=model, alias=alias)
    return SearchResult(f"{model}@{alias}", "alias", f"version {number}", to)


def _rollout(one: Any) -> SearchResult:
    to = link("/rollouts/{rollout}", rollout=one["id"])
    phase = PHASES.get(one["phase"], one["phase"])
    about = f"to version {one['candidate']}, {phase}, {one['created_at'][:10]}"
    return SearchResult(one["name"], "rollout", about, to)


def _push(one: Any) -> SearchResult:
    about = f"{one['repository']} {one['new_commit'][:10]} by {who(one['pusher'])}, {one['state']}"
    return SearchResult(
        one["subject"] or one["id"], "push", about, link("/pushes/{id}", id=one["id"])
    )


def _job(one: Any) -> SearchResult:
    source = one["sources"][0]
    name = f"{job_type(one['type'])} {source['model']} version {source['version']}"
    about = f"{one['state']}, {one['created_at'][:10]}"
    return SearchResult(name, "job", about, link("/jobs/{job}", job=one["id"]))


def _pipeline(one: Any) -> list[SearchResult]:
    """The page of the job that it has come to; nothing before the first."""
    jobs = [step["job"] for step in one["steps"] if step["job"]]
    name = f"{one['model']} version {one['version']}"
    about = f"{one['state']}, step {one['step']} of {len(one['steps'])}, {one['created_at'][:10]}"
    return [SearchResult(name, "pipeline", about, link("/jobs/{job}", job=jobs[-1]))] * bool(jobs)


def _setting(row: Any) -> SearchResult:
    return SearchResult(
        row["name"], "setting", row["value"], f"/settings?{urlencode({'q': row['name']})}"
    )


SCREENS = (
    Screen(path="/search", title="Search", template="search.html", load=load, docs="console"),
)
ACTS: tuple[FormAction, ...] = ()
