"""Pipelines: the steps that pushes have declared, followed and cancelled."""

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.jobs.policy.pipelines import PipelineState
from control.pipelines import queries, service
from control.pipelines.views import PipelineView

_READ = Access(Action.READ)
_CHANGE = Access(Action.OPERATE)


def list_(call: AuthorizedCall) -> EndpointResult:
    model, state = call.query.get("model"), call.query.get("state")
    with call.services.database.reading() as session:
        found = queries.list_pipelines(session, model=model, state=state, **call.paging())
        return from_page(found)


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(queries.get_pipeline(session, call.path["pipeline"]))


def cancel(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        view = service.cancel(tx, call.path["pipeline"])
    call.services.jobs_due()
    return EndpointResult(view)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/pipelines",
        access=_READ,
        tag="Jobs",
        summary="Pipelines of jobs that pushes have declared, newest first",
        run=list_,
        list_of=PipelineView,
        query=(
            Param("model", "Only those of this model, which was pushed."),
            Param("state", f"Only in this state: {', '.join(PipelineState)}."),
        ),
    ),
    Operation(
        verb="GET",
        path="/pipelines/{pipeline}",
        access=_READ,
        tag="Jobs",
        summary="A pipeline: its steps, and how far it is",
        run=show,
        gives=PipelineView,
    ),
    Operation(
        verb="POST",
        path="/pipelines/{pipeline}/cancel",
        access=_CHANGE,
        tag="Jobs",
        summary="Cancel a pipeline with the job that it has come to",
        run=cancel,
        gives=PipelineView,
    ),
)
