"""What every server says of every version it has, also of models that nobody deployed from git."""

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import page_of
from control.loads import states
from control.views import LoadView


def list_(call: AuthorizedCall) -> EndpointResult:
    model, state = call.query.get("model"), call.query.get("state")
    with call.services.database.reading() as session:
        views = states(session, None if model is None else [model])
    kept = [view for view in views if state is None or view.state == state]
    return page_of(call, kept, _key)


def _key(view: LoadView) -> str:
    return f"{view.model} {view.version:020} {view.server}"


OPERATIONS = (
    Operation(
        verb="GET",
        path="/loads",
        access=Access(Action.READ, "model"),
        tag="Models",
        summary="The state of each version on each server, by model and version; version 0 is the "
        "model as a whole",
        run=list_,
        list_of=LoadView,
        query=(
            Param("model", "Only of this model."),
            Param("state", "Only in this state, e.g. FAILED."),
        ),
    ),
)
