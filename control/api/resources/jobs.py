"""Offline jobs: made, followed, cancelled, tried again; their logs and reports."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.api.sampled_traffic import MOST_REQUESTS, traffic_of
from control.gateways.queries import SamplesQuery, samples_in
from control.jobs import creation, service
from control.jobs.creation import JobRequest, JobRights
from control.jobs.policy.admission import USUAL_QUEUE
from control.jobs.policy.states import JobState
from control.jobs.report import Report
from control.jobs.service import JobTerms
from control.jobs.spec import JOB_TYPES
from control.jobs.traffic import SAMPLED, Traffic
from control.jobs.views import JobLog, JobView
from control.sql.database import Transaction

_READ = Access(Action.READ)
_CHANGE = Access(Action.OPERATE)


class NewJob(ApiBody, frozen=True):
    spec: Annotated[
        dict[str, Any],
        meaning(
            f"`type` ({', '.join(JOB_TYPES)}), `model`, and the fields of the type; docs/jobs.md "
            "lists them.",
            examples=[{"type": "quantise", "model": "digits"}],
        ),
    ]
    limits: Annotated[
        dict[str, Any],
        meaning(
            "wall_s, cpu_s, memory_bytes, disk_bytes, output_bytes, threads: the most that an "
            "attempt may take; those not given are the usual ones of the type.",
            examples=[{"threads": 2}],
        ),
    ] = msgspec.field(default_factory=dict)
    priority: Annotated[
        Annotated[int, Meta(ge=-100, le=100)], meaning("The higher, the sooner.", examples=[0])
    ] = 0
    queue: Annotated[Text, meaning("The workers that may take it.", examples=[USUAL_QUEUE])] = (
        USUAL_QUEUE
    )


def list_(call: AuthorizedCall) -> EndpointResult:
    model, state, kind = (call.query.get(name) for name in ("model", "state", "type"))
    with call.services.database.reading() as session:
        found = service.list_jobs(session, model=model, state=state, kind=kind, **call.paging())
        return from_page(found)


async def create_(call: AuthorizedCall) -> EndpointResult:
    traffic = await _traffic(call, call.given(NewJob).spec)
    return await to_thread.run_sync(_created, call, traffic, limiter=call.services.threads)


async def _traffic(call: AuthorizedCall, spec: Mapping[str, Any]) -> Traffic:
    """What a profile sends again, of the requests that this server's gateway has sampled."""
    model = spec.get("model")
    if spec.get("type") != "profile" or spec.get("data") != SAMPLED or not isinstance(model, str):
        return ()
    call.require(Action.OPERATE, model)
    answered = await call.services.ask_gateway(SamplesQuery(model, "", MOST_REQUESTS))
    return traffic_of(samples_in(answered))


def _created(call: AuthorizedCall, traffic: Traffic) -> EndpointResult:
    given = call.given(NewJob)
    request = JobRequest(
        spec=given.spec,
        rights=_rights(call),
        limits=given.limits,
        terms=JobTerms(priority=given.priority, queue=given.queue, traffic=traffic),
    )
    with call.services.database.change(call.actor) as tx:
        view = creation.create(tx, request)
    call.services.jobs_due()
    return EndpointResult(view, 202, location=f"/api/v1/jobs/{view.id}")


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(service.get_job(session, call.path["job"]))


def log(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(service.get_log(session, call.path["job"]))


def report(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(service.get_report(session, call.path["job"]))


def cancel(call: AuthorizedCall) -> EndpointResult:
    return _changed(call, service.cancel)


def retry(call: AuthorizedCall) -> EndpointResult:
    return _changed(call, lambda tx, job_id: creation.retry(tx, job_id, _rights(call)))


def _rights(call: AuthorizedCall) -> JobRights:
    return JobRights(
        check_use=lambda model: call.require(Action.INFER, model),
        check_trusted=lambda: call.require(Action.ADMIN),
        folders=call.services.facts.model_folders,
    )


def _changed(call: AuthorizedCall, change: Callable[[Transaction, str], JobView]) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        view = change(tx, call.path["job"])
    call.services.jobs_due()
    return EndpointResult(view)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/jobs",
        access=_READ,
        tag="Jobs",
        summary="Offline jobs, newest first",
        run=list_,
        list_of=JobView,
        query=(
            Param("model", "Only those that work on this model, or make a version of it."),
            Param("state", f"Only in this state: {', '.join(JobState)}."),
            Param("type", f"Only of this type: {', '.join(JOB_TYPES)}."),
        ),
    ),
    Operation(
        verb="POST",
        path="/jobs",
        access=_CHANGE,
        tag="Jobs",
        summary="Convert, optimise, quantise, prune, distil or profile a version; the response is "
        "the job to follow",
        act=create_,
        takes=NewJob,
        gives=JobView,
        status=202,
    ),
    Operation(
        verb="GET",
        path="/jobs/{job}",
        access=_READ,
        tag="Jobs",
        summary="A job: how far it is, and how it ended",
        run=show,
        gives=JobView,
    ),
    Operation(
        verb="GET",
        path="/jobs/{job}/log",
        access=_READ,
        tag="Jobs",
        summary="The end of what a job printed, and its curves",
        run=log,
        gives=JobLog,
    ),
    Operation(
        verb="GET",
        path="/jobs/{job}/report",
        access=_READ,
        tag="Jobs",
        summary="What a job found: figures before and after, plots, warnings, what reproduces it",
        run=report,
        gives=Report,
    ),
    Operation(
        verb="POST",
        path="/jobs/{job}/cancel",
        access=_CHANGE,
        tag="Jobs",
        summary="Cancel a job that has not ended yet",
        run=cancel,
        gives=JobView,
    ),
    Operation(
        verb="POST",
        path="/jobs/{job}/retry",
        access=_CHANGE,
        tag="Jobs",
        summary="Try a job again that has failed or was cancelled",
        run=retry,
        gives=JobView,
    ),
)
