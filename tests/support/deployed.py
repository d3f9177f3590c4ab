"""A database as it looks after pushes: `deploy(database)` puts `digits` 1 and 2 into service."""

from control import loads, servers
from control.deployments import pushes
from control.deployments.repositories import create_repository
from control.deployments.sealed_model import SealedModel, SealedVersion
from control.sql.database import SYSTEM, Database
from repository.git.rules import RefUpdate

COMMITS = ("a" * 40, "b" * 40)
MAIN = "refs/heads/main"


def sealed(model: str, *numbers: int) -> SealedModel:
    """A snapshot of so many versions, each of a digest of its own."""
    versions = {n: SealedVersion(f"{n:064x}", 100 * n, 2, {"config": "fine"}) for n in numbers}
    return SealedModel(model, f"{max(numbers) + 100:064x}", 1000, 5, versions)


def deploy(database: Database) -> list[str]:
    """Repository `vision`, two pushes to it, and a server that has loaded both; the pushes' ids."""
    with database.change(SYSTEM) as tx:
        create_repository(tx, "vision")
        servers.register(tx, "server1", "boot1", "0.1.0", "http://127.0.0.1:8003")
    old, ids = "0" * 40, []
    for number, commit in enumerate(COMMITS, 1):
        with database.change(SYSTEM) as tx:
            facts = pushes.PushFacts(subject=f"digits {number}", author="Ada", report="all well")
            view = pushes.receive(tx, "vision", RefUpdate(old, commit, MAIN), facts)
            pushes.accept(tx, view.id)
        with database.change(SYSTEM) as tx:
            pushes.deploy(tx, view.id, {"digits": sealed("digits", *range(1, number + 1))})
        with database.change(SYSTEM) as tx:
            rows = [("digits", n, "READY", "") for n in range(1, number + 1)]
            loads.record(tx, "server1", [("digits", 0, "READY", ""), *rows])
            pushes.finish(tx, view.id, "served")
        old = commit
        ids.append(view.id)
    return ids
