"""Imports of models from URLs: wished for, followed, cancelled."""

from typing import Annotated

from msgspec import Meta

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.deployment import LONGEST_MODEL
from control.import_states import ImportState
from control.imports.service import LARGEST_VERSION, begin, cancel, get_import, list_imports
from control.views import ImportView

LONGEST_URL = 2048

_READ = Access(Action.READ)
_CHANGE = Access(Action.OPERATE)


class NewImport(ApiBody, frozen=True):
    url: Annotated[
        str,
        meaning(
            "https://, hf://OWNER/NAME, s3:// or gs://; an archive, an artefact, or a folder.",
            max_length=LONGEST_URL,
            examples=["https://example.com/models/digits.tar.gz"],
        ),
    ]
    model: Annotated[
        str, meaning("The name it is served by.", max_length=LONGEST_MODEL, examples=["digits"])
    ]
    version: Annotated[
        Annotated[int, Meta(ge=1, le=LARGEST_VERSION)] | None,
        meaning("Its number; the next one if not given.", examples=[3]),
    ] = None
    digest: Annotated[
        Text | None,
        meaning(
            "What must arrive: sha256: and 64 hexadecimal digits.", examples=["sha256:" + "0" * 64]
        ),
    ] = None


def list_(call: AuthorizedCall) -> EndpointResult:
    model, state = call.query.get("model"), call.query.get("state")
    with call.services.database.reading() as session:
        return from_page(list_imports(session, model=model, state=state, **call.paging()))


def create(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewImport)
    allowed = call.services.facts.import_allow
    with call.services.database.change(call.actor) as tx:
        view = begin(tx, given.url, given.model, given.version, given.digest, allowed=allowed)
    call.services.deployable()
    return EndpointResult(view, 202, location=f"/api/v1/imports/{view.id}")


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(get_import(session, call.path["import"]))


def cancel_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        view = cancel(tx, call.path["import"])
    call.services.deployable()
    return EndpointResult(view)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/imports",
        access=_READ,
        tag="Imports",
        summary="Imports from URLs, newest first",
        run=list_,
        list_of=ImportView,
        query=(
            Param("model", "Only of this model."),
            Param("state", f"Only in this state: {', '.join(ImportState)}."),
        ),
    ),
    Operation(
        verb="POST",
        path="/imports",
        access=_CHANGE,
        tag="Imports",
        summary="Import a model from a URL; the response is the import to follow",
        run=create,
        takes=NewImport,
        gives=ImportView,
        status=202,
    ),
    Operation(
        verb="GET",
        path="/imports/{import}",
        access=_READ,
        tag="Imports",
        summary="An import: how far it is, and how it ended",
        run=show,
        gives=ImportView,
    ),
    Operation(
        verb="POST",
        path="/imports/{import}/cancel",
        access=_CHANGE,
        tag="Imports",
        summary="Cancel an import that is not deployed yet",
        run=cancel_,
        gives=ImportView,
    ),
)
