"""Git repositories as rows: made, changed, listed, taken away. Their files are the caller's."""

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id
from control.deployments.deployment import undeploy
from control.errors import Conflict, Invalid, NotFound
from control.paging import SortOrder
from control.push_states import PushState
from control.repository_settings import RepositorySettings, stored_settings
from control.sql.database import Transaction, expect_revision
from control.tables import Model, Push, Repository, Version
from control.views import Page, RepositoryView
from repository.git.names import repository_problem


def create_repository(
    tx: Transaction, name: str, settings: RepositorySettings | None = None
) -> RepositoryView:
    """Raises Invalid for a name that cannot be one, Conflict when it is taken."""
    if problem := repository_problem(name):
        raise Invalid(f"'{name:.120}' cannot name a repository: {problem}", "name")
    tx.alone()
    if _by_name(tx.session, name) is not None:
        raise Conflict(f"there is a repository '{name}' already; choose another name")
    settings = settings or RepositorySettings()
    row = Repository(
        id=new_id(tx.now),
        name=name,
        deploy_ref=settings.deploy_ref,
        settings=_stored(settings),
        created_at=tx.now,
        revision=1,
    )
    tx.session.add(row)
    tx.changed("repository.created", f"repository:{name}", None, settings.as_json())
    return view_of(row)


def change_repository(
    tx: Transaction, name: str, settings: RepositorySettings, expected: int | None = None
) -> RepositoryView:
    """Take `settings` in place of the old ones; the same again changes nothing.

    Raises NotFound, Conflict when its revision is not `expected`.
    """
    tx.alone()
    row = find(tx.session, name)
    expect_revision(row.revision, expected, f"the repository '{name}'")
    before = _settings(row)
    if settings == before:
        return view_of(row)
    row.deploy_ref, row.settings = settings.deploy_ref, _stored(settings)
    row.revision += 1
    if settings.network != before.network:
        tx.desire()
    tx.changed("repository.changed", f"repository:{name}", before.as_json(), settings.as_json())
    return view_of(row)


def delete_repository(tx: Transaction, name: str) -> RepositoryView:
    """Undeploy its models and forget the repository and its pushes; versions' digests stay.

    Raises NotFound, and Conflict while an alias refers to one of its models or a push is being
    deployed.
    """
    tx.alone()
    row = find(tx.session, name)
    _check_idle(tx.session, row)
    models = tx.session.scalars(select(Model).where(Model.repository_id == row.id)).all()
    undeploy(tx, [model for model in models if model.snapshot_digest is not None])
    _disown(tx.session, row)
    tx.changed("repository.deleted", f"repository:{name}", _settings(row).as_json(), None)
    return view_of(row)


def list_repositories(
    session: Session, *, cursor: str | None = None, limit: int = paging.USUAL
) -> Page[RepositoryView]:
    """By name. Raises Invalid for a bad cursor or limit."""
    order = SortOrder((Repository.name,))
    return paging.page(session, select(Repository), order, cursor, limit).map(view_of)


def every_repository(session: Session) -> list[RepositoryView]:
    """All of them, by name: for the server itself; people get pages."""
    return [view_of(row) for row in session.scalars(select(Repository).order_by(Repository.name))]


def get_repository(session: Session, name: str) -> RepositoryView:
    """Raises NotFound."""
    return view_of(find(session, name))


def find(session: Session, name: str) -> Repository:
    """The row, for the neighbours in this package. Raises NotFound."""
    row = _by_name(session, name)
    if row is None:
        there = session.scalars(select(Repository.name).order_by(Repository.name).limit(20))
        raise NotFound(
            f"there is no repository '{name:.120}'; there are: {', '.join(there) or 'none'}"
        )
    return row


def view_of(row: Repository) -> RepositoryView:
    return RepositoryView(
        row.id, row.name, row.deploy_ref, _settings(row), row.created_at, row.revision
    )


def _by_name(session: Session, name: str) -> Repository | None:
    if repository_problem(name):
        return None
    return session.scalar(select(Repository).where(Repository.name == name))


def _stored(settings: RepositorySettings) -> dict[str, Any]:
    return {key: value for key, value in settings.as_json().items() if key != "deploy_ref"}


def _settings(row: Repository) -> RepositorySettings:
    return stored_settings({**row.settings, "deploy_ref": row.deploy_ref})


def _check_idle(session: Session, row: Repository) -> None:
    busy = select(Push.id).where(Push.repository_id == row.id, Push.state == PushState.ACCEPTED)
    if found := session.scalar(busy.limit(1)):
        raise Conflict(
            f"the repository '{row.name}' is deploying the push {found}; delete it afterwards"
        )


def _disown(session: Session, row: Repository) -> None:
    pushes = select(Push.id).where(Push.repository_id == row.id)
    for table in (Model, Version):
        session.execute(update(table).where(table.push_id.in_(pushes)).values(push_id=None))
        mine = update(table).where(table.repository_id == row.id)
        session.execute(mine.values(repository_id=None))
    session.execute(delete(Push).where(Push.repository_id == row.id))
    session.delete(row)
