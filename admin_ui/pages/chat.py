"""A language model tried by talking to it: messages, an answer that comes bit by bit, its settings.
One without a chat template goes on with a text instead.

Without scripts the form shows the whole answer when it is there; `static/chat.js` asks for the same
as a stream.
"""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response, StreamingResponse

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.pages import playground
from admin_ui.pages.gateway_requests import resolve_target, send_request, streamed
from admin_ui.screens import FormAction, ScreenContent
from admin_ui.services import ControlApiError, GatewayResponse

PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
STREAM = "text/event-stream"
TEXT = "text"
"""The form's kind for a model without a chat template."""
MOST_MESSAGES, LONGEST_HISTORY = 100, 200_000
MOST_TOKENS, WARMEST = 8192, 2.0

Message = dict[str, str]


async def chat(context: PageContext) -> ScreenContent | Response:
    """One more message, and what the model says to it."""
    target = context.form.get("chat_target", "")
    name, tail = await resolve_target(context, target)
    if tail:
        wrong = "a conversation is with the model's name or an alias of it, not with a version"
        raise ControlApiError(422, "invalid", wrong, "chat_target")
    messages, path = history(context.form), PATH
    body = request_of(name, messages, context.form)
    if context.form.get("kind") == TEXT:
        path = TEXT_PATH
        body = {**body, "prompt": messages[-1]["content"]}
        del body["messages"]
    if context.request.headers.get("accept", "") == STREAM:
        body |= {"stream": True}
        pieces = await streamed(context, name, path, json.dumps(body).encode())
        return StreamingResponse(pieces, 200, {**PRIVATE, "X-Accel-Buffering": "no"}, STREAM)
    answer = await send_request(context, name, "POST", path, json.dumps(body).encode())
    said = answer_message(answer)
    page, whole = await playground.try_page(context, "", None), [*messages, said]
    page.context["chat"] |= {"messages": whole, "history": json.dumps(whole)}
    page.twin = said
    return page


def history(form: Mapping[str, str]) -> list[Message]:
    """What was said before, and the new message. Raises ControlApiError beside the message."""
    said = form.get("history", "") or "[]"
    try:
        before = json.loads(said if len(said) <= LONGEST_HISTORY else "null")
        kept = [{"role": str(one["role"]), "content": str(one["content"])} for one in before]
    except (ValueError, KeyError, TypeError):
        wrong = "this conversation is too long or cannot be read; start a new one"
        raise ControlApiError(422, "invalid", wrong, "message") from None
    text, system = form.get("message", "").strip(), form.get("system", "").strip()
    if not text:
        raise ControlApiError(422, "invalid", "the message is empty", "message")
    kept = [one for one in kept if one["role"] in ("user", "assistant")][-MOST_MESSAGES:]
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *kept, {"role": "user", "content": text}]


def request_of(name: str, messages: list[Message], form: Mapping[str, str]) -> dict[str, Any]:
    """The body. Raises ControlApiError beside the field."""
    warmth = _number(form, "temperature", 0.0, WARMEST)
    tokens = int(_number(form, "max_tokens", 1, MOST_TOKENS))
    return {"model": name, "messages": messages, "temperature": warmth, "max_tokens": tokens}


def answer_message(answer: GatewayResponse) -> Message:
    """What the model said. Raises ControlApiError with the gateway's reason."""
    try:
        found = json.loads(answer.body)
        if answer.status == 200:
            choice = found["choices"][0]
            said = choice["text"] if "text" in choice else choice["message"]["content"]
            return {"role": "assistant", "content": str(said)}
        reason = str(found["error"]["message"])
    except (ValueError, KeyError, TypeError, IndexError):
        reason = f"the gateway answered HTTP {answer.status} with a body that cannot be read"
    raise ControlApiError(422, "invalid", reason[:1000], "message")


def _number(form: Mapping[str, str], field: str, least: float, most: float) -> float:
    try:
        found = float(form.get(field, ""))
        if not least <= found <= most:
            raise ValueError
    except ValueError:
        wrong = f"give a number from {least:g} to {most:g}"
        raise ControlApiError(422, "invalid", wrong, field) from None
    return found


SCREENS = ()
ACTS = (
    FormAction(
        path=playground.PATH + "/chat", screen=playground.PATH, run=chat, template="try.html"
    ),
)
