"""The last requests, looked up by their ids and what they took; samples of a model's, switched on
for a while."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from admin_ui.page_context import PageContext
from admin_ui.pages.model import among, whole
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from control.access.scopes import Action

PATH = "/requests"
MOST = 100
MINUTES = [("5", "5 minutes"), ("15", "15 minutes"), ("60", "an hour"), ("480", "8 hours")]
FIELDS = ("minutes", "percent", "values")
FILTERS = ("id", "model", "version", "arm", "outcome", "least_ms", "order", "since", "until")
OUTCOMES = [
    ("ok", "served"),
    ("failed", "failed"),
    ("refused", "refused"),
    ("cancelled", "cancelled"),
]
ORDERS = [("newest", "newest first"), ("slowest", "slowest first")]
MOST_MS = 3_600_000

Row = Mapping[str, Any]


async def load(context: PageContext) -> ScreenContent:
    chosen = {name: context.query.get(name, "").strip()[:255] for name in FILTERS}
    model, identity = chosen["model"], chosen["id"]
    asked = {name: text for name, text in chosen.items() if text}
    sampled = {name: text for name, text in asked.items() if name in ("model", "id")}
    problem = wrong_filter(chosen)
    answered, found, sampling, loads = await asyncio.gather(
        context.get("/requests", {"limit": str(MOST), **({} if problem else asked)}),
        context.get("/samples", {"limit": str(MOST), **sampled}),
        context.get("/sampling"),
        context.every("/loads"),
    )
    return ScreenContent(
        found,
        answered=[] if problem else answered["items"],
        fitting=answered["found"],
        kept=answered["kept"],
        servers=answered["servers"],
        silent=answered["silent"],
        problem=problem,
        rows=found["items"],
        sampling=sampling["items"],
        model=model,
        identity=identity,
        chosen=chosen,
        filtered=bool(asked),
        outcomes=OUTCOMES,
        orders=ORDERS,
        arm_name=arm_name,
        most=MOST,
        names=sorted({row["model"] for row in loads if row["version"]}),
        minutes=MINUTES,
        summed=summed,
        stop_path=PATH + "/sampling/{model}/stop",
    )


def wrong_filter(chosen: Mapping[str, str]) -> str:
    """Why these filters cannot be asked for, "" if they can. Pure."""
    for name, label, most in (
        ("version", "Version", 2**31 - 1),
        ("least_ms", "Took at least", MOST_MS),
    ):
        text = chosen[name]
        if text and not (text.isascii() and text.isdecimal() and 1 <= int(text[:18]) <= most):
            return f"{label} is '{text[:40]}'; it is a whole number from 1 to {most}"
    for name, values in (("outcome", OUTCOMES), ("order", ORDERS)):
        if chosen[name] and chosen[name] not in dict(values):
            return f"{name} is '{chosen[name][:40]}'; it is one of {', '.join(dict(values))}"
    return ""


def arm_name(label: str) -> str:
    """Of MODEL@VERSION;ARM;… as responses say it; "" without a route. Pure."""
    parts = label.split(";")
    return parts[1] if len(parts) > 1 else ""


def summed(tensor: Row) -> list[tuple[str, str]]:
    """What is known of a tensor beside its shape, each with its name. Pure."""
    about = tensor["about"]
    if about is None:
        return [("", "too few values to sum up")]
    words = [("of the first", f"{about['of']:,}")]
    words += [
        (name.removesuffix("_bytes"), f"{about[name]:.6g}{unit}")
        for name, unit in (
            ("least", ""),
            ("mean", ""),
            ("most", ""),
            ("shortest_bytes", " B"),
            ("longest_bytes", " B"),
        )
        if about.get(name) is not None
    ]
    if about.get("not_finite"):
        words.append(("NaN or infinite", f"{about['not_finite']:,}"))
    return words


def percent(text: str) -> float:
    """Raises ControlApiError beside the field."""
    try:
        found = float(text.strip().removesuffix("%").strip())
        if not 0.001 <= found <= 100:
            raise ValueError
    except ValueError:
        wrong = f"'{text[:40]}' is no percentage; give one from 0.001 to 100"
        raise ControlApiError(422, "invalid", wrong, "percent") from None
    return found


async def start(context: PageContext) -> str:
    model = context.form.get("model", "").strip()
    if not model:
        raise ControlApiError(
            422, "invalid", "give the model whose requests are to be sampled", "model"
        )
    body = {
        "minutes": whole(context, "minutes"),
        "percent": percent(context.form.get("percent", "")),
        "values": bool(context.form.get("values")),
    }
    try:
        await context.change("PUT", "/sampling/{model}", body, model=model)
    except ControlApiError as refused:
        raise among(refused, FIELDS) from refused
    return f"{PATH}?{urlencode({'model': model})}"


async def stop(context: PageContext) -> str:
    await context.change("DELETE", "/sampling/{model}", model=context.path["model"])
    return PATH


SCREENS = (
    Screen(
        path=PATH,
        title="Requests",
        menu="Requests",
        docs="requests",
        template="requests.html",
        load=load,
        needs=Action.OPERATE,
        live=("sampling.*",),
        live_every_s=5.0,
    ),
)
ACTS = (
    FormAction(path=PATH + "/sampling", screen=PATH, run=start),
    FormAction(path=PATH + "/sampling/{model}/stop", screen=PATH, run=stop),
)
