"""Models and their versions, as they were deployed and as the servers say they are."""

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.versions import get_model, get_version, list_models, list_versions
from control.errors import NotFound
from control.views import ModelView, VersionView

_READ = Access(Action.READ, "model")
_MOST_DIGITS = 18


def list_(call: AuthorizedCall) -> EndpointResult:
    repository = call.query.get("repository")
    with call.services.database.reading() as session:
        return from_page(list_models(session, repository=repository, **call.paging()))


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(get_model(session, call.path["model"]))


def versions(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return from_page(list_versions(session, call.path["model"], **call.paging()))


def version(call: AuthorizedCall) -> EndpointResult:
    model, text = call.path["model"], call.path["version"]
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise NotFound(f"'{text[:40]}' is not the number of a version")
    with call.services.database.reading() as session:
        return EndpointResult(get_version(session, model, int(text)))


OPERATIONS = (
    Operation(
        verb="GET",
        path="/models",
        access=Access(Action.READ),
        tag="Models",
        summary="Models that are or were deployed from git, by name",
        run=list_,
        list_of=ModelView,
        query=(Param("repository", "Only of this repository."),),
    ),
    Operation(
        verb="GET",
        path="/models/{model}",
        access=_READ,
        tag="Models",
        summary="A model: what is deployed, its versions, aliases and states",
        run=show,
        gives=ModelView,
    ),
    Operation(
        verb="GET",
        path="/models/{model}/versions",
        access=_READ,
        tag="Models",
        summary="A model's versions with their provenance, the highest first",
        run=versions,
        list_of=VersionView,
    ),
    Operation(
        verb="GET",
        path="/models/{model}/versions/{version}",
        access=_READ,
        tag="Models",
        summary="A version: provenance, checks, states, aliases",
        run=version,
        gives=VersionView,
    ),
)
