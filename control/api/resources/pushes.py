"""Pushes and deployments: what became of each."""

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.deployments.pushes import get_push, list_pushes
from control.push_states import PushState
from control.views import PushView


def list_(call: AuthorizedCall) -> EndpointResult:
    repository, state = call.query.get("repository"), call.query.get("state")
    with call.services.database.reading() as session:
        return from_page(list_pushes(session, repository=repository, state=state, **call.paging()))


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(get_push(session, call.path["push"]))


OPERATIONS = (
    Operation(
        verb="GET",
        path="/pushes",
        access=Access(Action.PULL, "repository"),
        tag="Repositories",
        summary="Pushes and deployments, newest first",
        run=list_,
        list_of=PushView,
        query=(
            Param("repository", "Only to this repository; a token for one repository needs it."),
            Param("state", "Only in this state.", schema={"enum": [*PushState]}),
        ),
    ),
    Operation(
        verb="GET",
        path="/pushes/{push}",
        access=Access(Action.PULL, "push"),
        tag="Repositories",
        summary="A push: its changes, the report to the pusher, and its outcome",
        run=show,
        gives=PushView,
    ),
)
