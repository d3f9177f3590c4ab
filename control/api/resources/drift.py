"""Drift: which models are watched, against what, and what was found."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Natural, Text, meaning
from control.api.call import NOTHING, Access, AuthorizedCall, EndpointResult, Operation, Param
from control.api.responses import page_of
from control.clock import Moment
from control.drift import service
from control.drift.points import VersionDrift
from control.drift.profile import DriftProfile, from_profile, to_profile
from control.drift.terms import DriftTerms
from control.drift.views import DriftReport, DriftWatchView
from control.drift.windows import read_windows
from control.errors import NotFound
from control.http_errors import MalformedRequest

_READ = Access(Action.READ)
_CHANGE = Access(Action.OPERATE, "model")
_PATH = "/drift/{model}"
_USUAL = DriftTerms()
USUAL_RANGE = timedelta(hours=1)


class DriftTermsBody(ApiBody, frozen=True):
    """What is left out is as usual."""

    percent: Annotated[
        float, meaning("Of the model's requests that are counted.", ge=0.001, le=100.0)
    ] = _USUAL.percent
    per_second: Annotated[
        float, meaning("No more are counted a second, on each server.", ge=0.1, le=1000)
    ] = _USUAL.per_s
    window: Annotated[
        int,
        meaning("Seconds: the last ones are compared, four times in each.", ge=10, le=7 * 86_400),
    ] = _USUAL.window_s
    psi: Annotated[
        float, meaning("A feature whose PSI is above may have drifted.", ge=0.01, le=100.0)
    ] = _USUAL.psi
    ks: Annotated[
        float, meaning("Or whose Kolmogorov-Smirnov distance is above.", ge=0.01, le=1)
    ] = _USUAL.ks
    alpha: Annotated[
        float,
        meaning(
            "And whose p-value, by Holm's correction over all features, is at most this.",
            ge=1e-9,
            le=0.5,
        ),
    ] = _USUAL.alpha
    min_sample: Annotated[
        int, meaning("Values on either side below which nothing is said.", ge=50, le=10**9)
    ] = _USUAL.min_sample
    labels: Annotated[
        Text,
        meaning('The output with the labels or scores of classes; "" finds it, "-" has none.'),
    ] = _USUAL.labels
    names: Annotated[
        bool,
        meaning(
            "Keep the values of strings, rather than hashes of them. Takes the role admin, unless "
            "they are kept already."
        ),
    ] = _USUAL.names


class DriftReferenceBody(ApiBody, frozen=True):
    """What to compare with: what a version got from `since` until `until`, a `profile`, the profile
    that each version came with, or nothing."""

    kind: Annotated[Text, meaning("One of window, profile, pushed, none.", examples=["window"])]
    version: Annotated[Natural, meaning("Of a window: whose.")] = 0
    since: Annotated[Text, meaning("Of a window: from this moment on, RFC 3339.")] = ""
    until: Annotated[Text, meaning("Of a window: before this moment; now if not given.")] = ""
    profile: Annotated[
        dict[str, Any], meaning("A drift_profile.json, as docs/drift.md describes it.")
    ] = msgspec.field(default_factory=dict)


def list_(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return page_of(call, service.list_watches(session), lambda one: one.model)


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        found = service.report_of(session, call.path["model"])
    return EndpointResult(found, revision=found.watch.revision)


def watch(call: AuthorizedCall) -> EndpointResult:
    given, model = call.given(DriftTermsBody), call.path["model"]
    terms = DriftTerms(
        percent=given.percent,
        per_s=given.per_second,
        window_s=given.window,
        psi=given.psi,
        ks=given.ks,
        alpha=given.alpha,
        min_sample=given.min_sample,
        labels=given.labels,
        names=given.names,
    )
    with call.services.database.change(call.actor) as tx:
        if given.names and not service.keeps_names(tx.session, model):
            call.require(Action.ADMIN)
        return _one(service.watch(tx, model, terms, call.expected))


def unwatch(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.change(call.actor) as tx:
        service.unwatch(tx, call.path["model"])
    return NOTHING


def refer(call: AuthorizedCall) -> EndpointResult:
    given, model = call.given(DriftReferenceBody), call.path["model"]
    with call.services.database.change(call.actor) as tx:
        match given.kind:
            case "window":
                since = _moment(given.since, "since")
                until = _moment(given.until, "until") if given.until else call.now
                view = service.refer_to_window(tx, model, given.version, since, until)
            case "profile":
                view = service.refer_to_profile(tx, model, _profile(given))
            case "pushed":
                view = service.refer_to_pushed(tx, model)
            case "none":
                view = service.refer_to_nothing(tx, model)
            case _:
                raise MalformedRequest(
                    f"kind is '{given.kind:.40}'; it is one of window, profile, pushed, none",
                    "kind",
                )
    return _one(view)


def profile(call: AuthorizedCall) -> EndpointResult:
    """What a version got in a stretch of time, to be kept as a file. Raises NotFound."""
    model, version = call.path["model"], call.query.get("version") or 0
    until = call.query.get("until") or call.now
    since = call.query.get("since") or until - USUAL_RANGE
    with call.services.database.reading() as session:
        service.report_of(session, model)
        counts = read_windows(session, model, version, since.timestamp(), until.timestamp())
    if not counts.features:
        raise NotFound(
            f"nothing was counted of version {version} of '{model}' between {since:%Y-%m-%d %H:%M} "
            f"and {until:%Y-%m-%d %H:%M} UTC"
        )
    began = f"{since:%Y-%m-%d %H:%M} UTC"
    comment = f"{model} version {version}, {counts.requests} requests from {began}"
    return EndpointResult(to_profile(counts, comment))


def _moment(text: str, name: str) -> datetime:
    try:
        found: datetime = msgspec.convert(text, Moment)
        return found
    except msgspec.ValidationError:
        raise MalformedRequest(
            f"{name} is '{text:.40}'; write a moment like 2026-11-21T04:24:00Z", name
        ) from None


def _profile(given: DriftReferenceBody) -> VersionDrift:
    try:
        read = msgspec.convert(given.profile, DriftProfile)
    except msgspec.ValidationError as error:
        raise MalformedRequest(f"profile is no drift profile: {error}", "profile") from error
    return from_profile(read)


def _one(view: DriftWatchView) -> EndpointResult:
    return EndpointResult(view, 200, view.revision, f"/api/v1/drift/{quote(view.model, safe='')}")


OPERATIONS = (
    Operation(
        verb="GET",
        path="/drift",
        access=_READ,
        tag="Drift",
        summary="Models whose drift is watched, by name",
        run=list_,
        list_of=DriftWatchView,
    ),
    Operation(
        verb="GET",
        path=_PATH,
        access=_READ,
        tag="Drift",
        summary="A watched model: the last verdict on each version, feature by feature",
        run=show,
        gives=DriftReport,
    ),
    Operation(
        verb="PUT",
        path=_PATH,
        access=_CHANGE,
        tag="Drift",
        summary="Watch the drift of a model, or change on which terms",
        run=watch,
        takes=DriftTermsBody,
        gives=DriftWatchView,
        if_match=True,
    ),
    Operation(
        verb="DELETE",
        path=_PATH,
        access=_CHANGE,
        tag="Drift",
        summary="Stop watching a model, and forget what was counted of it",
        run=unwatch,
        status=204,
    ),
    Operation(
        verb="PUT",
        path=f"{_PATH}/reference",
        access=_CHANGE,
        tag="Drift",
        summary="Choose what a model is compared with: a stretch of time, a profile, or nothing",
        run=refer,
        takes=DriftReferenceBody,
        gives=DriftWatchView,
    ),
    Operation(
        verb="GET",
        path=f"{_PATH}/profile",
        access=_READ,
        tag="Drift",
        summary="What a version got in a stretch of time, as a profile for a file",
        run=profile,
        gives=DriftProfile,
        query=(
            Param("version", "Of this version.", int),
            Param("since", "From this moment on; an hour before `until` by default.", datetime),
            Param("until", "Before this moment; now by default.", datetime),
        ),
    ),
)
