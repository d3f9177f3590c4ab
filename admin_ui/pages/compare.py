"""Two versions, arms or aliases side by side: the same request to both, and their series."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response, StreamingResponse

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.pages import playground
from admin_ui.pages.comparison import outputs_differ, series_differ
from admin_ui.pages.gateway_requests import resolve_target, send_request, streamed
from admin_ui.pages.snippets import infer_path
from admin_ui.pages.tensors import CLASSES, image_of
from admin_ui.pages.verbs import (
    GENERATE,
    INFER,
    STREAM,
    documents_in,
    fields_of,
    outputs_in,
    request_for,
    verb_of,
)
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.text import link
from admin_ui.traffic.load import pair_traffic
from control.access.scopes import Action

PATH = "/compare/{model}"

Row = Mapping[str, Any]
Target = tuple[str, str]


async def load(context: PageContext) -> ScreenContent:
    return await _content(context, None)


async def call(context: PageContext) -> ScreenContent:
    """The request of the form, to both at once."""
    targets = await playground.targets_of(context)
    pair = _pair(context, targets)
    metadata, _ = await playground.metadata_of(context, pair[0])
    config = await playground.config_of(context, pair[0]) if metadata else {}
    verb = verb_of(config)
    body = request_for(verb, fields_of(metadata, config), context.form)
    outputs = metadata.get("outputs") or []
    if verb == INFER and context.form.get("classes"):
        wanted = {"classification": CLASSES}
        body["outputs"] = [{"name": one["name"], "parameters": wanted} for one in outputs]
    sent = json.dumps(body).encode()
    found = await asyncio.gather(*(_call_target(context, target, verb, sent) for target in pair))
    data = [outputs_in(documents_in(answer.body), outputs).get("outputs") or [] for answer in found]
    answers = {
        "pair": [playground.answer_of(answer, outputs) for answer in found],
        "outputs": outputs_differ(*data),
    }
    return await _content(context, answers)


async def _call_target(context: PageContext, target: str, verb: str, body: bytes) -> Any:
    label, tail = await resolve_target(context, target)
    return await send_request(context, label, "POST", infer_path(label, tail, verb), body)


async def stream(context: PageContext) -> Response:
    """A language model's answer as it comes, of the one that the form names."""
    label, tail = await resolve_target(context, context.form.get("target", ""))
    body = {
        "text_input": context.form.get("text", ""),
        "max_tokens": playground.whole_between(context, "max_tokens", 1, 8192),
        "temperature": 0.0,
        "exclude_input_in_output": True,
    }
    path = infer_path(label, tail, STREAM)
    pieces = await streamed(context, label, path, json.dumps(body).encode(), "text")
    headers = {**PRIVATE, "X-Accel-Buffering": "no"}
    return StreamingResponse(pieces, 200, headers, playground.EVENTS)


async def _content(context: PageContext, answers: Any) -> ScreenContent:
    name = context.path["model"]
    targets = await playground.targets_of(context)
    pair = _pair(context, targets)
    may_infer = context.may(Action.INFER, name)
    metadata, problem = await playground.metadata_of(context, pair[0]) if may_infer else ({}, "")
    config = await playground.config_of(context, pair[0]) if metadata else {}
    traffic, items, step_s = await pair_traffic(context, name, pair)
    words = dict(targets)
    return ScreenContent(
        {"model": name, "pair": pair, "answers": answers},
        title=f"Compare {name}",
        name=name,
        targets=targets[1:],
        pair=pair,
        words=[words.get(one, one) for one in pair],
        problem=problem,
        verb=verb_of(config),
        inputs=[{**one, "image": image_of(one)} for one in fields_of(metadata, config)],
        labelled=playground.has_labels(config),
        language=bool(metadata) and verb_of(config) == GENERATE,
        answers=answers,
        traffic=traffic,
        differences=series_differ(*items, step_s),
        acts={one: link(f"{PATH}/{one}", model=name) for one in ("call", "stream")},
    )


def _pair(context: PageContext, targets: Sequence[Target]) -> tuple[str, str]:
    """What was chosen; the first two arms, or the two highest versions, where nothing was."""
    known = [value for value, _ in targets if value]
    arms = [one for one in known if one.startswith("arm:")]
    usual = (arms if len(arms) > 1 else [one for one in known if one.startswith("version:")])[:2]
    usual = list(reversed(usual)) if usual and usual[0].startswith("version:") else usual
    first, second = (usual + known + ["", ""])[:2]
    a = context.form.get("a", context.query.get("a", first))
    b = context.form.get("b", context.query.get("b", second))
    return (a if a in known else first, b if b in known else second)


SCREENS = (
    Screen(
        path=PATH, title="Compare", template="compare.html", load=load, under="/models",
        docs="console",
    ),
)  # fmt: skip
ACTS = (
    FormAction(path=PATH + "/call", screen=PATH, run=call, template="compare.html"),
    FormAction(path=PATH + "/stream", screen=PATH, run=stream, template="compare.html"),
)
