"""The models a caller may ask: language models, their aliases, and routes that lead to them. Pure
but for what it asks the data plane."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from control.access.scopes import Action
from server.access.authorizer import public_name
from server.access.token_holder import TokenHolder
from server.dataplane import DataPlane
from server.errors import ModelLoading, NotReady, ServingError, UnknownModel
from server.model_queries import ModelQueries
from server.rest.openai_errors import not_ready_yet
from server.served_version import ServedVersion


class LanguageModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, an alias of one, or a route; `root`: whose version answers now."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["modelyard"] = "modelyard"
    root: str
    parent: None = None
    max_model_len: int
    version: int


class LanguageModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the caller may ask."""

    object: Literal["list"] = "list"
    data: list[LanguageModel]


def listed(dataplane: DataPlane, holder: TokenHolder | None, created: int) -> LanguageModelList:
    """All of them, by name."""
    names = sorted(set(_names(dataplane)))
    found = [_model_or_none(dataplane, holder, name, created) for name in names]
    return LanguageModelList(data=[one for one in found if one is not None])


def listed_one(
    dataplane: DataPlane, holder: TokenHolder | None, name: str, created: int
) -> LanguageModel:
    """Raises UnknownModel, also for what the caller may not ask: it is none of theirs; NotReady for
    a model that is loading."""
    try:
        found = _model(dataplane, holder, name, created)
    except (ModelLoading, NotReady) as error:
        raise not_ready_yet(name, error) from error
    except ServingError:
        found = None
    if found is None:
        raise UnknownModel(f"The model '{name}' does not exist or you do not have access to it.")
    return found


def _names(dataplane: DataPlane) -> Iterator[str]:
    yield from dataplane.routing.table
    for served in dataplane.models.served():
        if served.language is not None:
            name = served.version.name
            yield name
            yield from (f"{name}@{alias}" for alias in dataplane.routing.aliases.get(name, ()))


def _model_or_none(
    dataplane: DataPlane, holder: TokenHolder | None, name: str, created: int
) -> LanguageModel | None:
    """None for what nobody can ask now."""
    try:
        return _model(dataplane, holder, name, created)
    except ServingError:
        return None


def _model(
    dataplane: DataPlane, holder: TokenHolder | None, name: str, created: int
) -> LanguageModel | None:
    aliases = dataplane.routing.aliases
    if holder is not None and not holder.may(Action.INFER, public_name(name, aliases)):
        return None
    return _described(name, ModelQueries(dataplane).get(name, ""), created)


def _described(name: str, served: ServedVersion, created: int) -> LanguageModel | None:
    if served.language is None:
        return None
    return LanguageModel(
        id=name,
        created=created,
        root=served.version.name,
        max_model_len=served.language.context,
        version=served.version.number,
    )
