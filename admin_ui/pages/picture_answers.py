"""A model tried with a picture as the body of its request: what it sees, for the page to draw.

Only `static/photo.js` asks this: it keeps the picture, and draws labels as bars and boxes in it.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from math import isfinite
from typing import Any

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.pages import playground
from admin_ui.pages.gateway_requests import gateway_for, resolve_target, send_request
from admin_ui.pages.snippets import infer_path
from admin_ui.pages.verbs import INFER, documents_in
from admin_ui.screens import FormAction
from admin_ui.services import ControlApiError, GatewayResponse

MOST_PICTURE_BYTES = 16 * 2**20
AT_ONCE, UPLOAD_S = 2, 60.0
"""Pictures that this process has in memory at a time, each from another user."""
MOST_SEEN, MOST_LABEL = 1000, 500
LARGEST = 2**53
"""Of whole numbers, which a page takes for others above."""
_KINDS = ("image/jpeg", "image/png", "image/webp")

Row = Mapping[str, Any]

_senders: set[str] = set()


async def send_picture(context: PageContext) -> Response:
    """The answer, and what it sees: `labels` and `detections`, each with a score."""
    kind = context.form.get("kind", "")
    label, tail = await resolve_target(context, context.form.get("target", ""))
    kind = kind if kind in _KINDS else _KINDS[0]  # the server looks at the bytes
    path = infer_path(label, tail, INFER)
    gateway_for(context, label)  # before anything of the picture is read
    with slot(context.principal.id):
        data = await _read_picture(context.request)
        answer = await send_request(context, label, "POST", path, data, kind)
        del data
        return await to_thread.run_sync(_response, answer)


def _response(answer: GatewayResponse) -> Response:
    outputs = documents_in(answer.body)[-1].get("outputs") or ()
    return JSONResponse({**playground.answer_of(answer, ()), **seen_in(outputs)}, 200, PRIVATE)


@contextmanager
def slot(user: str) -> Iterator[None]:
    """A place for a picture in memory. Raises ControlApiError where none is free."""
    if user in _senders:
        raise ControlApiError(429, "busy", "a picture of yours is on its way; wait for its answer")
    if len(_senders) >= AT_ONCE:
        raise ControlApiError(503, "busy", "others are sending pictures; try again")
    _senders.add(user)
    try:
        yield
    finally:
        _senders.remove(user)


async def _read_picture(request: Request) -> bytes:
    """The body. Raises ControlApiError."""
    too_large = ControlApiError(
        413, "too_large", f"a picture has {MOST_PICTURE_BYTES >> 20} MiB at most here"
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MOST_PICTURE_BYTES:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(UPLOAD_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_PICTURE_BYTES:
                    raise too_large
    except TimeoutError:
        wrong = f"the picture did not arrive within {UPLOAD_S:g} s"
        raise ControlApiError(408, "too_slow", wrong) from None
    except ClientDisconnect as error:
        raise ControlApiError(400, "malformed", "the picture did not arrive") from error
    if not data:
        raise ControlApiError(422, "invalid", "choose a picture")
    return bytes(data)


def seen_in(outputs: Sequence[Any]) -> dict[str, list[Row]]:
    """Labels and detections of the first row: as the documents of the steps `classify` and
    `detect` have them, whatever their outputs are called; else of `LABELS` and `SCORES`. Pure."""
    found: dict[str, list[Row]] = {"labels": [], "detections": []}
    rows = [one for one in outputs if isinstance(one, Mapping) and one.get("data")]
    for one in rows:
        document = _document(one["data"][0]) if one.get("datatype") == "BYTES" else {}
        for name, seen in found.items():
            listed = document.get(name)
            if isinstance(listed, list):
                drawn = [_drawn(row, name) for row in listed[:MOST_SEEN]]
                seen += [row for row in drawn if row]
        if sum(map(len, found.values())) >= MOST_SEEN:
            break
    if not any(found.values()):
        data = {one.get("name"): one["data"] for one in rows}
        pairs = zip(data.get("LABELS", ()), data.get("SCORES", ()), strict=False)
        drawn = [
            _drawn({"label": label, "score": score}, "labels")
            for label, score in islice(pairs, MOST_SEEN)
        ]
        found["labels"] = [row for row in drawn if row]
    return found


def _document(text: object) -> Row:
    try:
        found = json.loads(text) if isinstance(text, str) and text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _drawn(row: object, name: str) -> Row:
    """What the page takes of it; nothing where it cannot be drawn."""
    if not isinstance(row, Mapping) or not isinstance(row.get("label"), str):
        return {}
    numbers = [row.get("score")]
    taken = ["label", "score"]
    if name == "detections":
        box = row.get("box")
        if not isinstance(box, list) or len(box) != 4:
            return {}
        numbers += box
        taken.append("box")
        if _is_number(row.get("class")):
            taken.append("class")
    if not all(map(_is_number, numbers)):
        return {}
    label = row["label"][:MOST_LABEL].encode(errors="replace").decode()
    return {**{key: row[key] for key in taken}, "label": label}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST if isinstance(value, int) else isfinite(value)


SCREENS = ()
ACTS = (
    FormAction(
        path=playground.PATH + "/picture",
        screen=playground.PATH,
        run=send_picture,
        template="try.html",
        file=True,
    ),
)
