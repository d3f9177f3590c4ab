"""Experiments: what is compared, for how long, and what came of it."""

from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Number, Positive, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import from_page
from control.errors import Invalid
from control.experiments import service
from control.experiments.analysis import analyse, series, view_of_analysis
from control.experiments.route_arms import check_placed, placed
from control.experiments.service import ExperimentView
from control.experiments.views import AnalysisView, ExperimentDocument, ExperimentState, PointView
from control.views import Page

_READ, _OPERATE = Access(Action.READ), Access(Action.OPERATE)
_PATH = "/experiments/{experiment}"


class NewExperiment(ApiBody, frozen=True):
    """The keys of docs/experiments.md; what is not said is the default."""

    name: Annotated[Text, meaning("Its name.", examples=["colour"])]
    route: Annotated[Text, meaning("The route whose arms are compared.", examples=["shop"])]
    metrics: Annotated[
        list[dict[str, Any]],
        meaning(
            "What is measured: `name`, `kind` (proportion, mean or quantile), `direction` (up or "
            "down) and `minimal_effect`.",
            examples=[
                [
                    {
                        "name": "conversion",
                        "kind": "proportion",
                        "direction": "up",
                        "minimal_effect": 0.01,
                    }
                ]
            ],
        ),
    ]
    arms: Annotated[
        list[dict[str, Any]] | None,
        meaning("`name` and `share` of each, the control first; the route's own if not given."),
    ] = None
    alpha: Annotated[Number | None, meaning("How often no difference may be called one.")] = None
    horizon: Annotated[Positive | None, meaning("Units planned for, of all arms.")] = None
    namespace: Annotated[Text | None, meaning("Experiments of one share no unit.")] = None
    share_percent: Annotated[Number | None, meaning("Of the namespace's units.")] = None
    window_s: Annotated[Number | None, meaning("How long a unit's feedback counts.")] = None


class NewConclusion(ApiBody, frozen=True):
    decision: Annotated[
        str,
        meaning(
            "What was decided, in words.",
            max_length=service.LONGEST_WORDS,
            examples=["ship b: it converts better"],
        ),
    ]


def list_(call: AuthorizedCall) -> EndpointResult:
    state = call.query.get("state")
    if state is not None and state not in tuple(ExperimentState):
        raise Invalid(f"'{state:.80}' is no state; {', '.join(ExperimentState)} are", "state")
    with call.services.database.reading() as session:
        found = service.list_experiments(
            session,
            route=call.query.get("route"),
            state=None if state is None else ExperimentState(state),
            **call.paging(),
        )
        return from_page(found.map(ExperimentView.document))


def create(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewExperiment)
    terms = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if name not in ("name", "route") and value is not None
    }
    with call.services.database.change(call.actor) as tx:
        terms = placed(tx.session, given.route, terms)
        return _one(service.create_experiment(tx, given.name, given.route, terms), 201)


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return _one(service.get_experiment(session, call.path["experiment"]))


def delete(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        service.delete_experiment(tx, call.path["experiment"], call.expected)
    return NOTHING


def start(call: AuthorizedCall) -> EndpointResult:
    name = call.path["experiment"]
    with call.services.database.change(call.actor) as tx:
        check_placed(tx.session, service.get_experiment(tx.session, name))
        return _one(service.start_experiment(tx, name, call.expected))


def stop(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        return _one(service.stop_experiment(tx, call.path["experiment"], call.expected))


def conclude(call: AuthorizedCall) -> EndpointResult:
    name, words = call.path["experiment"], call.given(NewConclusion).decision
    with call.services.database.change(call.actor) as tx:
        return _one(service.conclude_experiment(tx, name, words, call.expected))


def analysis(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(view_of_analysis(analyse(session, call.path["experiment"])))


def points(call: AuthorizedCall) -> EndpointResult:
    """All at once: there are a few hundred."""
    metric, arm = call.query.get("metric", ""), call.query.get("arm", "")
    with call.services.database.reading() as session:
        found = series(session, call.path["experiment"], metric, arm)
    return from_page(Page(tuple(found)))


def _one(view: ExperimentView, status: int = 200) -> EndpointResult:
    return EndpointResult(
        view.document(), status, view.revision, f"/api/v1/experiments/{quote(view.name)}"
    )


OPERATIONS = (
    Operation(
        verb="GET",
        path="/experiments",
        access=_READ,
        tag="Experiments",
        summary="Experiments, the newest first",
        run=list_,
        list_of=ExperimentDocument,
        query=(
            Param("route", "Only those on this route."),
            Param("state", "Only those in this state: draft, running, stopped or concluded."),
        ),
    ),
    Operation(
        verb="POST",
        path="/experiments",
        access=_OPERATE,
        tag="Experiments",
        summary="Plan an experiment; it counts nothing before it is started",
        run=create,
        takes=NewExperiment,
        gives=ExperimentDocument,
        status=201,
    ),
    Operation(
        verb="GET",
        path=_PATH,
        access=_READ,
        tag="Experiments",
        summary="An experiment: its arms, metrics and state",
        run=show,
        gives=ExperimentDocument,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_OPERATE,
        tag="Experiments",
        summary="Delete an experiment that was never started",
        run=delete,
        status=204,
        if_match=True,
    ),
    Operation(
        verb="POST",
        path=f"{_PATH}/start",
        access=_OPERATE,
        tag="Experiments",
        summary="Start an experiment: units and feedback count from now on",
        run=start,
        gives=ExperimentDocument,
        if_match=True,
    ),
    Operation(
        verb="POST",
        path=f"{_PATH}/stop",
        access=_OPERATE,
        tag="Experiments",
        summary="Stop an experiment: no new units from now on",
        run=stop,
        gives=ExperimentDocument,
        if_match=True,
    ),
    Operation(
        verb="POST",
        path=f"{_PATH}/conclude",
        access=_OPERATE,
        tag="Experiments",
        summary="Conclude an experiment: record the decision beside the verdict",
        run=conclude,
        takes=NewConclusion,
        gives=ExperimentDocument,
        if_match=True,
    ),
    Operation(
        verb="GET",
        path=f"{_PATH}/analysis",
        access=_READ,
        tag="Experiments",
        summary="The analysis so far: intervals that hold however often one looks, and a verdict",
        run=analysis,
        gives=AnalysisView,
    ),
    Operation(
        verb="GET",
        path=f"{_PATH}/series",
        access=_READ,
        tag="Experiments",
        summary="How an interval went over time, for charts",
        run=points,
        list_of=PointView,
        query=(
            Param("metric", "Which metric."),
            Param("arm", "Which arm against the control."),
        ),
    ),
)
