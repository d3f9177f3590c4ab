"""Offline jobs: their list, one with its progress, log and report, a new one, two compared."""

import json
from typing import Any

import msgspec

from admin_ui.event_text import is_told
from admin_ui.page_context import PageContext
from admin_ui.pages.job_terms import read_spec, spec_forms
from admin_ui.reports.comparison import compared, spec_differences
from admin_ui.reports.plots import curves, draw
from admin_ui.reports.seen import SeenReport, seen_report
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.tables import cursor_page
from admin_ui.text import job_type, link, moment
from control.jobs.messages import CurvePoint
from control.jobs.policy.admission import USUAL_QUEUE
from control.jobs.policy.states import UNFINISHED, JobState
from control.jobs.spec import JOB_TYPES

EVENTS = 20
KNOWN_REPORTS = 100
"""Jobs that are offered to be compared, the newest."""

_REPORTED = (JobState.PUBLISHING, JobState.DONE, JobState.FAILED)
"""States of jobs that may have come to a report."""

_RAIL = {
    "done": "past", "failed": "failed", "cancelled": "failed",
    **dict.fromkeys(("queued", "running", "publishing"), "here"),
}  # fmt: skip
"""State of a step of a pipeline → how it is drawn; the others are ahead."""

_FILTERS = ("model", "state", "type")


async def load_all(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/jobs", _FILTERS)
    imports = await context.get("/imports", {"limit": "5"})
    asked = {name: context.query.get(name, "") for name in _FILTERS}
    return ScreenContent(
        document,
        page=page,
        asked=asked,
        states=[str(state) for state in JobState],
        types=JOB_TYPES,
        imports=imports["items"],
    )


async def load_imports(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/imports", ("model", "state"))
    return ScreenContent(document, page=page)


async def load(context: PageContext) -> ScreenContent:
    job = await context.get("/jobs/{job}", job=context.path["job"])
    name = job["id"]
    output = await context.get("/jobs/{job}/log", job=name)
    report = await context.maybe("/jobs/{job}/report", job=name)
    pipeline = await _pipeline(context, job)
    query = {"newest": "true", "limit": str(EVENTS), "subject": f"job:{name}"}
    events = await context.get("/events", query)
    points = msgspec.convert(output["points"], list[CurvePoint])
    return ScreenContent(
        {"job": job, "report": report, "pipeline": pipeline},
        title=title_of(job),
        job=job,
        pipeline=pipeline,
        usual_queue=USUAL_QUEUE,
        rail=[] if pipeline is None else rail_of(pipeline, job["step"]),
        log=output["text"],
        curves=[draw(one) for one in curves(points)],
        seen=None if report is None else seen_report(report),
        spec=json.dumps(job["spec"], indent=2),
        events=[one for one in events["items"] if is_told(one)],
        unfinished=[str(state) for state in UNFINISHED],
        acts={
            verb: link(f"/jobs/{{job}}/{verb}", job=name)
            for verb in ("cancel", "retry", "compare", "cancel-pipeline")
        },
    )


async def load_new(context: PageContext) -> ScreenContent:
    forms = spec_forms()
    kind = context.typed("/jobs/new", "type", context.query.get("type", ""))
    form = forms.get(kind) or forms["quantise"]
    model, version = context.query.get("model", ""), context.query.get("version", "")
    loads = await context.every("/loads")
    ready = {
        (one["model"], one["version"])
        for one in loads
        if one["state"] == "READY" and one["version"]
    }
    sources = [f"{name}:{number}" for name, number in sorted(ready)]
    return ScreenContent(
        {"types": list(forms)},
        title=f"New job: {job_type(form.type)}",
        form=form,
        types=list(forms),
        model=model,
        version=version,
        sources=sources,
        source=f"{model}:{version}",
    )


async def load_comparison(context: PageContext) -> ScreenContent:
    found = await context.get("/jobs", {"limit": str(KNOWN_REPORTS)})
    asked = [context.query.get(name, "") for name in ("first", "second")]
    jobs, reports = [], []
    for name in filter(None, asked):
        jobs.append(await context.get("/jobs/{job}", job=name))
        reports.append(seen_report(await context.get("/jobs/{job}/report", job=name)))
    return ScreenContent(
        {"jobs": [one["id"] for one in jobs]},
        known=[one for one in found["items"] if one["state"] in _REPORTED],
        first=asked[0],
        second=asked[1],
        jobs=jobs,
        names=[f"{title_of(one)}, {moment(one['created_at'])}" for one in jobs],
        reports_seen=reports,
        **_compared(reports),
    )


async def _pipeline(context: PageContext, job: Any) -> Any:
    """The one that the job is a step of; None for none, and for one that is forgotten."""
    if not job["pipeline"]:
        return None
    return await context.maybe("/pipelines/{pipeline}", pipeline=job["pipeline"])


def rail_of(pipeline: Any, here: int) -> list[dict[str, Any]]:
    """The steps of a pipeline as the page draws them; `here` is that of the page's job."""
    rail = []
    for step in pipeline["steps"]:
        state = _RAIL.get(step["state"], "ahead")
        page = ""
        if step["job"] and step["number"] != here:
            page = link("/jobs/{job}", job=step["job"])
        elif step["rollout"]:
            page = link("/rollouts/{rollout}", rollout=step["rollout"])
        made = f"{step['model']} version {step['version']}" if step["version"] else ""
        label = job_type(step["type"])
        rail.append({
            "state": state, "label": label, "words": step["state"], "made": made, "page": page,
            "current": step["number"] == here,
        })  # fmt: skip
    return rail


def title_of(job: Any) -> str:
    """ "Quantise digits version 2"."""
    source = job["sources"][0]
    kind = job_type(job["type"])
    return f"{kind[:1].upper()}{kind[1:]} {source['model']} version {source['version']}"


async def create(context: PageContext) -> str:
    spec = read_spec(context.form.get("type", ""), context.form)
    model, _, version = context.form.get("source", "").rpartition(":")
    if not (model and version.isdigit()):
        raise ControlApiError(422, "invalid", "choose the version that it works on", "source")
    spec |= {"model": model, "version": int(version)}
    if name := context.form.get("result_model", "").strip():
        spec["result_model"] = name
    made = await context.change("POST", "/jobs", {"spec": spec})
    return link("/jobs/{job}", job=made.document["id"])


async def cancel(context: PageContext) -> str:
    await context.change("POST", "/jobs/{job}/cancel", job=context.path["job"])
    return link("/jobs/{job}", job=context.path["job"])


async def retry(context: PageContext) -> str:
    await context.change("POST", "/jobs/{job}/retry", job=context.path["job"])
    return link("/jobs/{job}", job=context.path["job"])


async def cancel_pipeline(context: PageContext) -> str:
    """With the job that it has come to, which may be a later one than the page's."""
    job = await context.get("/jobs/{job}", job=context.path["job"])
    await context.change("POST", "/pipelines/{pipeline}/cancel", pipeline=job["pipeline"])
    return link("/jobs/{job}", job=context.path["job"])


async def start_comparison(context: PageContext) -> str:
    """The original's traffic goes to it and to the result in halves, by a route of its name."""
    job = await context.get("/jobs/{job}", job=context.path["job"])
    source, result = job["sources"][0], job["result"]
    if not result["version"]:
        raise ControlApiError(409, "conflict", "the job has no version as its result")
    name = source["model"]
    route = await context.maybe("/routes/{route}", route=name)
    if route is not None and len(route["arms"]) > 1:
        raise ControlApiError(
            409,
            "conflict",
            f"the route '{name}' splits its traffic already; give it the result as another arm "
            f"there ({result['model']}:{result['version']})",
        )
    arms = [
        {"name": arm, "model": one["model"], "version": one["version"], "weight": 50.0}
        for arm, one in (("original", source), (job["type"], result))
    ]
    revision = 0 if route is None else route["revision"]
    await context.change("PUT", "/routes/{route}", {"arms": arms}, revision, route=name)
    return link("/routes/{route}", route=name)


def _compared(reports: list[SeenReport]) -> dict[str, Any]:
    if len(reports) < 2:
        return {"rows": [], "differences": []}
    first, second = (one.report for one in reports)
    return {
        "rows": compared(first, second),
        "differences": spec_differences(first.spec, second.spec),
    }


SCREENS = (
    Screen(
        path="/jobs",
        title="Jobs",
        menu="Jobs",
        docs="jobs",
        template="jobs.html",
        load=load_all,
        live=("job.*", "import.*"),
    ),
    Screen(
        path="/jobs/imports",
        title="Imports",
        docs="imports",
        template="imports.html",
        load=load_imports,
        under="/jobs",
        live=("import.*",),
    ),
    Screen(
        path="/jobs/new", title="New job", template="job_new.html", load=load_new, under="/jobs"
    ),
    Screen(
        path="/jobs/compare",
        title="Compare reports",
        template="job_compare.html",
        load=load_comparison,
        under="/jobs",
    ),
    Screen(
        path="/jobs/{job}",
        title="Job",
        template="job.html",
        load=load,
        under="/jobs",
        live=("job.*", "pipeline.*"),
        personal=True,
        about=lambda path: f"job:{path['job']}",
    ),
)
ACTS: tuple[FormAction, ...] = (
    FormAction(path="/jobs/new", screen="/jobs/new", run=create),
    FormAction(path="/jobs/{job}/cancel", screen="/jobs/{job}", run=cancel),
    FormAction(path="/jobs/{job}/retry", screen="/jobs/{job}", run=retry),
    FormAction(path="/jobs/{job}/cancel-pipeline", screen="/jobs/{job}", run=cancel_pipeline),
    FormAction(path="/jobs/{job}/compare", screen="/jobs/{job}", run=start_comparison),
)
