"""Repositories, pushes and sealed models for tests of desired state, made by the real steps."""

import hashlib
from collections.abc import Mapping

from control.deployments import pushes, repositories
from control.deployments.pushes import PushFacts
from control.deployments.sealed_model import SealedModel, SealedVersion
from control.repository_settings import RepositorySettings
from control.sql.database import Database
from control.views import PushView
from repository.git.rules import RefUpdate
from support.control import ADA

MAIN = "refs/heads/main"
ZEROS = "0" * 40


def commit(number: int) -> str:
    """A commit's id."""
    return f"{number:040x}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(model: str, versions: Mapping[int, str], config: str = "") -> SealedModel:
    """A snapshot; what stands for a version's bytes is a text."""
    made = {
        number: SealedVersion(digest(text), len(text), 1, {"config": "ok"}, "ci@example.org")
        for number, text in versions.items()
    }
    whole = digest(f"{model} {sorted(versions.items())} {config}")
    return SealedModel(model, whole, sum(map(len, versions.values())), len(versions) + 1, made)


def repository(
    database: Database, name: str = "vision", settings: RepositorySettings | None = None
) -> str:
    with database.change(ADA) as tx:
        return repositories.create_repository(tx, name, settings).name


def received(
    database: Database, new: int, old: int = 0, ref: str = MAIN, name: str = "vision"
) -> str:
    """A push that pre-receive let through; its id."""
    with database.change(ADA) as tx:
        update = RefUpdate(commit(old), commit(new), ref)
        return pushes.receive(tx, name, update, PushFacts("Teach it digits", "Ada")).id


def accepted(
    database: Database, new: int, old: int = 0, ref: str = MAIN, name: str = "vision"
) -> str:
    """A push whose ref has moved; its id."""
    push_id = received(database, new, old, ref, name)
    with database.change(ADA) as tx:
        pushes.accept(tx, push_id)
    return push_id


def deployed(database: Database, new: int, *models: SealedModel, name: str = "vision") -> PushView:
    """A push to the deploy ref with these models in its tree."""
    return deploy(database, accepted(database, new, name=name), *models)


def deploy(database: Database, push_id: str, *models: SealedModel) -> PushView:
    with database.change(ADA) as tx:
        return pushes.deploy(tx, push_id, {model.model: model for model in models})
