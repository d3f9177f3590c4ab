"""The playground: a model tried with a form made of its metadata, through the server's own REST."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.pages.gateway_requests import problem_of, resolve_target, send_request, streamed
from admin_ui.pages.loaded_version import loaded_here
from admin_ui.pages.snippets import complete, infer_path, programs, talk
from admin_ui.pages.tensors import CLASSES, body_of, image_of, laid_out, output_rows
from admin_ui.pages.verbs import (
    GENERATE,
    INFER,
    STREAM,
    documents_in,
    fields_of,
    outputs_in,
    request_for,
    sample_request,
    verb_of,
)
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError, GatewayResponse
from admin_ui.text import link
from control.access.scopes import Action

PATH = "/playground/{model}"
MOST_TEXT = 20_000
ROUTED = "x-modelyard-route"
EVENTS = "text/event-stream"
_FORMS = ("call", "call-json", "chat", "picture")

Row = Mapping[str, Any]


async def load_all(context: PageContext) -> ScreenContent:
    models, loads, routes = await asyncio.gather(
        context.every("/models"), context.every("/loads"), context.every("/routes")
    )
    ready = {row["model"] for row in loads if row["state"] == "READY"}
    routed = {row["name"] for row in routes}
    names = sorted(ready | routed | {row["name"] for row in models})
    rows = [{"name": name, "ready": name in ready, "route": name in routed} for name in names]
    found = [row for row in rows if context.may(Action.INFER, row["name"])]
    return ScreenContent({"items": found}, rows=found, problem=problem_of(context))


async def load(context: PageContext) -> ScreenContent:
    return await try_page(context, context.query.get("target", ""), None)


async def call(context: PageContext) -> ScreenContent | Response:
    """With the fields of the form; a script takes the responses of a stream as they come."""
    target = context.form.get("target", "")
    metadata, _ = await metadata_of(context, target)
    config = await config_of(context, target) if metadata else {}
    verb = verb_of(config)
    body = request_for(verb, fields_of(metadata, config), context.form)
    if verb == STREAM and context.request.headers.get("accept", "") == EVENTS:
        label, tail = await resolve_target(context, target)
        path = infer_path(label, tail, verb)
        pieces = await streamed(context, label, path, json.dumps(body).encode(), "target")
        return StreamingResponse(pieces, 200, {**PRIVATE, "X-Accel-Buffering": "no"}, EVENTS)
    if verb == INFER and context.form.get("classes"):
        outputs = [one["name"] for one in metadata.get("outputs") or ()]
        wanted = {"classification": CLASSES}
        body["outputs"] = [{"name": one, "parameters": wanted} for one in outputs]
    return await _call_target(context, target, verb, body)


async def call_json(context: PageContext) -> ScreenContent:
    """With a body as it was written."""
    target = context.form.get("target", "")
    body = body_of(context.form.get("body", ""))
    return await _call_target(context, target, verb_of(await config_of(context, target)), body)


async def _call_target(context: PageContext, target: str, verb: str, body: Row) -> ScreenContent:
    label, tail = await resolve_target(context, target)
    path = infer_path(label, tail, verb)
    answer = await send_request(context, label, "POST", path, json.dumps(body).encode())
    tried = await try_page(context, target, body)
    tried.context["answer"] = tried.twin = answer_of(answer, tried.context["outputs"])
    return tried


async def try_page(context: PageContext, target: str, body: Row | None) -> ScreenContent:
    name = context.path["model"]
    target = context.form.get("target", target)
    metadata, problem = await metadata_of(context, target)
    label, tail = await resolve_target(context, target)
    config = await config_of(context, target) if metadata else {}
    inputs = [{**one, "image": image_of(one)} for one in fields_of(metadata, config)]
    verb = verb_of(config)
    sent = body or sample_request(verb, inputs)
    targets = await targets_of(context)
    gateway = context.services.gateway
    url = gateway.url if gateway else "http://127.0.0.1:8000"
    token = bool(gateway and gateway.wants_token)
    return ScreenContent(
        metadata or {"name": name},
        title=f"Try {name}",
        name=name,
        verb=verb,
        inputs=inputs,
        outputs=metadata.get("outputs") or [],
        problem=problem,
        target=target,
        targets=targets,
        chat_targets=[one for one in targets if one[0].partition(":")[0] in ("", "alias")],
        body=laid_out(sent)[:MOST_TEXT],
        wants_token=token,
        labelled=has_labels(config),
        picture=takes_picture(config),
        chat=await _language(context, verb, url, label, token),
        answer=None,
        **programs(url, label, tail, verb, sent, token),
        acts={
            one: link(f"{PATH}/{one}", model=name)
            for one in ("call", "call-json", "chat", "picture")
        },
    )


async def _language(
    context: PageContext, verb: str, url: str, label: str, token: bool
) -> dict[str, Any] | None:
    """How a language model is asked: `talks` where it has a chat template, with a text otherwise;
    None for other models."""
    if verb != GENERATE:
        return None
    loaded = await loaded_here(context, label.partition("@")[0])
    template = loaded[0]["language"].get("chat template", "none") if loaded else "none"
    talks = template != "none"
    same = talk(url, label, token) if talks else complete(url, label, token)
    return {"talks": talks, **_conversation(context, same)}


def _conversation(context: PageContext, same: Mapping[str, str]) -> dict[str, Any]:
    """What was said so far, when the form is shown again, and the same from programs."""
    try:
        said = json.loads(context.form.get("history", "[]"))
        messages = [{"role": str(one["role"]), "content": str(one["content"])} for one in said]
    except (ValueError, KeyError, TypeError):
        messages = []
    return {**same, "messages": messages, "history": json.dumps(messages)}


async def metadata_of(context: PageContext, target: str) -> tuple[Row, str]:
    """What the gateway says of the model's tensors; nothing, and why, when it says nothing."""
    try:
        label, tail = await resolve_target(context, target)
        path = f"/v2/models/{quote(label, safe='@')}{tail}"
        answer = await send_request(context, label, "GET", path)
        found = json.loads(answer.body)
    except ControlApiError as refused:
        if refused.status == 403:
            raise
        return {}, refused.message
    except ValueError:
        return {}, "the gateway's response cannot be read"
    if answer.status != 200 or not isinstance(found, dict):
        return {}, str(found.get("error", found))[:1000] if isinstance(found, dict) else "no answer"
    return found, ""


async def config_of(context: PageContext, target: str) -> Row:
    """The model's config as it is served; nothing when the gateway does not tell it."""
    try:
        label, tail = await resolve_target(context, target)
        path = f"/v2/models/{quote(label, safe='@')}{tail}/config"
        answer = await send_request(context, label, "GET", path)
        found = json.loads(answer.body) if answer.status == 200 else {}
    except (ControlApiError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def has_labels(config: Row) -> bool:
    """Whether it names labels for classes. Pure."""
    return any(one.get("label_filename") for one in config.get("output") or ())


def takes_picture(config: Row) -> bool:
    """Whether a picture may be the body of a request. Pure."""
    return "request_body.image" in (config.get("parameters") or {})


async def targets_of(context: PageContext) -> list[tuple[str, str]]:
    """Whatever may answer: the name as it is, a route's arms, versions, aliases."""
    name = context.path["model"]
    model, route, loads = await asyncio.gather(
        context.maybe("/models/{model}", model=name),
        context.maybe("/routes/{route}", route=name),
        context.every("/loads", {"model": name}),
    )
    arms = [one["name"] for one in (route or {"arms": []})["arms"]]
    versions = sorted({row["version"] for row in loads if row["version"]}, reverse=True)
    aliases = sorted((model or {}).get("aliases", {}))
    usual = "as the route decides" if route else "the newest version that is ready"
    return [
        ("", usual),
        *((f"arm:{one}", f"arm {one}") for one in arms),
        *((f"version:{one}", f"version {one}") for one in versions),
        *((f"alias:{one}", f"alias @{one}") for one in aliases),
    ]


def whole_between(context: PageContext, field: str, least: int, most: int) -> int:
    """A number that was typed. Raises ControlApiError beside its field."""
    text = context.form.get(field, "").strip()
    if not (text.isascii() and text.isdigit() and least <= int(text[:9]) <= most):
        wrong = f"give a whole number from {least} to {most}"
        raise ControlApiError(422, "invalid", wrong, field)
    return int(text)


def answer_of(answer: GatewayResponse, outputs: Sequence[Row]) -> dict[str, Any]:
    """What came back, for the page and as the twin."""
    documents = documents_in(answer.body)
    last = documents[-1]
    errors = [str(one["error"]) for one in documents if one.get("error")]
    return {
        "status": answer.status,
        "took_ms": round(answer.took_s * 1000, 2),
        "model": str(last.get("model_name", "")),
        "version": str(last.get("model_version", "")),
        "routed": answer.headers.get(ROUTED, ""),
        "error": (errors or [""])[0][:MOST_TEXT],
        "outputs": output_rows(outputs_in(documents, outputs)),
        "text": laid_out(last if len(documents) == 1 else documents)[:MOST_TEXT],
    }


SCREENS = (
    Screen(
        path="/playground",
        title="Playground",
        menu="Playground",
        docs="console",
        template="playground.html",
        load=load_all,
    ),
    Screen(path=PATH, title="Try a model", template="try.html", load=load, under="/playground"),
)
ACTS = (
    FormAction(path=PATH + "/call", screen=PATH, run=call, template="try.html"),
    FormAction(path=PATH + "/call-json", screen=PATH, run=call_json, template="try.html"),
)
