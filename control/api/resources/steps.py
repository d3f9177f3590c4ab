"""The steps of a loaded ensemble: its graph, and what each step did in a stretch of time."""

from datetime import datetime
from functools import partial

from anyio import to_thread
from msgspec import structs

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.resources.instances import version_asked_for
from control.api.resources.series import moment, range_asked_for
from control.errors import NotFound
from control.gateways.queries import EnsembleStepFacts, LoadedQuery, LoadedVersions
from control.series.points import SeriesPoint, StepPoint, one_after_another
from control.series.reading import SeriesRange, range_of, with_open_point
from control.series.selection import SeriesSelection
from control.series.step_views import EnsembleStepsView, EnsembleStepView
from control.series.steps import figures_of

_POINTS = 200
"""Of which the figures are summed; what has passed of the last one counts as well."""


async def show(call: AuthorizedCall) -> EndpointResult:
    """Raises NotFound for what is not loaded here, or no ensemble."""
    model, version = call.path["model"], version_asked_for(call)
    found: LoadedVersions = await call.services.ask_gateway(LoadedQuery(model))
    facts = next((one for one in found.items if one.version == version), None)
    if facts is None:
        raise NotFound(f"version {version} of '{model}' is not loaded on this server")
    if not facts.steps:
        raise NotFound(f"version {version} of '{model}' is no ensemble: it has no steps")
    since, until = range_asked_for(call)
    end = int(until.timestamp())
    asked = range_of(int(since.timestamp()), end, int(call.now.timestamp()), _POINTS)
    within, open_s = with_open_point(asked, end)
    count = partial(_counted, call, within, SeriesSelection("version", model, version))
    whole = await to_thread.run_sync(count, limiter=call.services.threads)
    span_s = within.until - within.since - (within.step_s - open_s if open_s else 0)
    return EndpointResult(
        EnsembleStepsView(
            model=model,
            version=version,
            since=moment(within.since),
            until=moment(within.since + span_s),
            requests=whole.succeeded + whole.failures,
            failed=whole.failures,
            inputs=[one.name for one in facts.inputs],
            outputs=[one.name for one in facts.outputs],
            steps=[_view(one, whole, span_s) for one in facts.steps],
        )
    )


def _counted(call: AuthorizedCall, within: SeriesRange, selection: SeriesSelection) -> SeriesPoint:
    server = call.query.get("server", "")
    call.services.series.write_held()
    with call.services.database.reading() as session:
        found = call.services.series.read(session, within, selection, server)
    return one_after_another([*found.get(str(selection.version), {}).values()])


def _view(facts: EnsembleStepFacts, whole: SeriesPoint, span_s: float) -> EnsembleStepView:
    counted = (whole.steps or {}).get(f"{facts.number}:{facts.model}", StepPoint())
    figures = figures_of(counted, whole, bool(facts.mapped), span_s)
    return EnsembleStepView(**structs.asdict(facts), figures=figures)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/instances/{model}/versions/{version}/steps",
        access=Access(Action.READ, "model"),
        tag="Server",
        summary="The graph of an ensemble loaded on this server, with each step's traffic",
        act=show,
        query=(
            Param("server", "Traffic of this server alone; else of all together."),
            Param("since", "From this moment on; an hour before `until` by default.", datetime),
            Param("until", "Before this moment; now by default.", datetime),
        ),
        gives=EnsembleStepsView,
    ),
)
