"""The store at a start: hooks, limits, and what a crash left."""

from pathlib import Path

from control import servers
from control.api.resources.repositories import limits_of
from control.clock import utc_now
from control.deployments import repositories
from control.loops import housekeeping
from control.sql.database import Database
from control.views import RepositoryView
from repository.git import bare
from repository.git.hooks import hook


def prepare_store(database: Database, store: Path, server: str) -> list[RepositoryView]:
    """Hooks, and what a crash left in the store; blocks. The repositories without a folder: a crash
    came between the row and it."""
    with database.reading() as session:
        others = [
            one
            for one in servers.list_servers(session, utc_now())
            if one.alive and one.id != server
        ]
    if others:
        hook.install(bare.hooks_folder(store))
    else:
        bare.start(store, bare.ReceiveLimits())
    with database.reading() as session:
        views = repositories.every_repository(session)
    there = bare.names(store)
    for view in views:
        if view.name in there:
            bare.configure(store, bare.find(store, view.name), limits_of(view))
    housekeeping.sweep(database, store)
    return [view for view in views if view.name not in there]
