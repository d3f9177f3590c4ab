"""Git repositories: rows and folders made together, commits looked at and deployed."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from anyio import to_thread

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.pushes import PushFacts, deploy_commit
from control.deployments.repositories import (
    change_repository,
    create_repository,
    delete_repository,
    get_repository,
    list_repositories,
)
from control.errors import Invalid
from control.repository_settings import parse_settings
from control.views import CommitView, Page, PushView, RepositoryView
from repository.git import bare
from repository.git.contents import objects
from repository.lfs.store import LfsStore

_READ = Access(Action.PULL, "repository")
_ADMIN = Access(Action.ADMIN)


class NewRepository(ApiBody, frozen=True):
    name: Annotated[Text, meaning("a-z 0-9 . _ -; 100 characters at most.", examples=["vision"])]
    settings: Annotated[
        dict[str, Any],
        meaning(
            "What differs from the defaults: deploy_ref, formats, protected, budgets, signing, "
            "trusted_keys, network.",
            examples=[{"deploy_ref": "refs/heads/main"}],
        ),
    ] = msgspec.field(default_factory=dict)


class RepositoryChange(ApiBody, frozen=True):
    settings: Annotated[
        dict[str, Any],
        meaning(
            "Settings to change; those not named stay as they are.",
            examples=[{"budgets": {"max_files": 100}}],
        ),
    ]


class Deployment(ApiBody, frozen=True):
    commit: Annotated[
        Text | None, meaning("A commit id, whole or shortened.", examples=["1f0c2ab"])
    ] = None
    ref: Annotated[Text | None, meaning("A branch or tag.", examples=["refs/tags/v3"])] = None


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_repositories(session, **call.paging()))


async def create(call: AuthorizedCall) -> EndpointResult:
    """The row first: what lies under its name without a row is a left-over, and nobody's."""
    given = call.given(NewRepository)
    view = await _in_thread(call, partial(_create_row, call, given))
    root, limits = call.services.facts.store, limits_of(view)
    if view.name in await _in_thread(call, partial(bare.names, root)):
        await _in_thread(call, partial(bare.remove, root, view.name))
    await _in_thread(call, partial(LfsStore(root).forget, view.name))
    await bare.create(root, view.name, limits)
    return _one(view, 201, f"/api/v1/repositories/{quote(view.name)}")


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(get_repository(session, call.path["repository"]))


def change(call: AuthorizedCall) -> EndpointResult:
    given, name = call.given(RepositoryChange), call.path["repository"]
    with call.services.database.change(call.actor) as tx:
        before = get_repository(tx.session, name)
        settings = parse_settings(given.settings, before.settings)
        view = change_repository(tx, name, settings, call.expected)
    root = call.services.facts.store
    bare.configure(root, bare.find(root, name), limits_of(view))
    return _one(view)


def delete(call: AuthorizedCall) -> EndpointResult:
    name, root = call.path["repository"], call.services.facts.store
    with call.services.database.change(call.actor) as tx:
        call.check_revision(get_repository(tx.session, name).revision, f"the repository '{name}'")
        delete_repository(tx, name)
    if name in bare.names(root):
        bare.remove(root, name)
    LfsStore(root).forget(name)
    return NOTHING


async def deploy(call: AuthorizedCall) -> EndpointResult:
    """Put a commit of the repository into service, whatever its deploy ref says."""
    given = call.given(Deployment)
    if (given.commit is None) == (given.ref is None):
        raise Invalid("give either commit or ref", "commit")
    revision = given.commit or given.ref or ""
    view = await _in_thread(call, partial(_view, call))
    path = bare.find(call.services.facts.store, view.name).path
    commit = await objects.commit_info(path, await objects.resolve(path, revision))
    push = await _in_thread(call, partial(_deploy_row, call, commit, given.ref or ""))
    call.services.deployable()
    return EndpointResult(push, 202, location=f"/api/v1/pushes/{push.id}")


async def log(call: AuthorizedCall) -> EndpointResult:
    """The deploy ref's history; the cursor is the last commit of the page before."""
    view = await _in_thread(call, partial(_view, call))
    paging = call.paging()
    limit, cursor = paging["limit"], paging["cursor"]
    path = bare.find(call.services.facts.store, view.name).path
    revision = call.query.get("ref") or view.deploy_ref
    if cursor is None and revision not in await objects.refs(path):
        return from_page(Page(()))  # nothing was pushed there yet
    found = await objects.log(path, cursor or revision, limit + (2 if cursor else 1))
    commits = found[1:] if cursor else found
    following = commits[limit - 1].oid if len(commits) > limit else None
    return from_page(Page(tuple(map(_commit, commits[:limit])), following))


def limits_of(view: RepositoryView) -> bare.ReceiveLimits:
    """What git itself is to refuse."""
    return bare.ReceiveLimits(push_bytes=view.settings.budgets.max_pack_bytes)


def _create_row(call: AuthorizedCall, given: NewRepository) -> RepositoryView:
    with call.services.database.change(call.actor) as tx:
        return create_repository(tx, given.name, parse_settings(given.settings))


def _deploy_row(call: AuthorizedCall, commit: objects.Commit, ref: str) -> PushView:
    facts = PushFacts(subject=commit.subject, author=commit.author.name)
    with call.services.database.change(call.actor) as tx:
        return deploy_commit(tx, call.path["repository"], commit.oid, ref, facts)


def _view(call: AuthorizedCall) -> RepositoryView:
    with call.services.database.reading() as session:
        return get_repository(session, call.path["repository"])


async def _in_thread(call: AuthorizedCall, work: Any) -> Any:
    return await to_thread.run_sync(work, limiter=call.services.threads)


def _commit(one: objects.Commit) -> CommitView:
    at = datetime.fromtimestamp(one.authored_at, UTC) if one.authored_at else None
    return CommitView(one.oid, list(one.parents), one.author.name, at, one.subject)


def _one(view: RepositoryView, status: int = 200, location: str = "") -> EndpointResult:
    return EndpointResult(view, status, view.revision, location)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/repositories",
        access=Access(Action.READ),
        tag="Repositories",
        summary="All git repositories, by name",
        run=list_,
        list_of=RepositoryView,
    ),
    Operation(
        verb="POST",
        path="/repositories",
        access=_ADMIN,
        tag="Repositories",
        summary="Create a git repository to push models to",
        act=create,
        takes=NewRepository,
        gives=RepositoryView,
        status=201,
    ),
    Operation(
        verb="GET",
        path="/repositories/{repository}",
        access=_READ,
        tag="Repositories",
        summary="A repository and its settings",
        run=show,
        gives=RepositoryView,
    ),
    Operation(
        verb="PATCH",
        path="/repositories/{repository}",
        access=_ADMIN,
        tag="Repositories",
        summary="Change a repository's settings",
        run=change,
        takes=RepositoryChange,
        gives=RepositoryView,
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path="/repositories/{repository}",
        access=_ADMIN,
        tag="Repositories",
        summary="Delete a repository with its commits; its models are undeployed",
        run=delete,
        status=204,
        if_match=True,
    ),
    Operation(
        verb="POST",
        path="/repositories/{repository}/deploy",
        access=Access(Action.OPERATE, "repository"),
        tag="Repositories",
        summary="Deploy a commit, also an older one; the response is the push to follow",
        act=deploy,
        takes=Deployment,
        gives=PushView,
        status=202,
    ),
    Operation(
        verb="GET",
        path="/repositories/{repository}/commits",
        access=_READ,
        tag="Repositories",
        summary="The history of the deploy ref, newest first",
        act=log,
        list_of=CommitView,
        query=(Param("ref", "Another branch or tag, by its whole name."),),
    ),
)
