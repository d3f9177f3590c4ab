"""A model tried with a picture as the body of its request: what it sees, for the page to draw.

Only `static/photo.js` asks this: it keeps the picture, and draws labels as bars and boxes in it.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from admin_ui.headers import PRIVATE
from admin_ui.page_context import PageContext
from admin_ui.pages import playground
from admin_ui.pages.gateway_requests import resolve_target, send_request
from admin_ui.pages.snippets import infer_path
from admin_ui.pages.verbs import INFER, documents_in
from admin_ui.screens import FormAction
from admin_ui.services import ControlApiError

MOST_PICTURE_BYTES = 16 * 2**20
MOST_FORM_BYTES = MOST_PICTURE_BYTES * 4 // 3 + 2**16
MOST_SEEN = 1000
_KINDS = ("image/jpeg", "image/png", "image/webp")

Row = Mapping[str, Any]


async def send_picture(visit: PageContext) -> Response:
    """The answer, and what it sees: `labels` and `detections`, each with a score."""
    data = picture_in(visit.form.get("picture", ""))
    kind = visit.form.get("kind", "")
    label, tail = await resolve_target(visit, visit.form.get("target", ""))
    kind = kind if kind in _KINDS else _KINDS[0]  # the server looks at the bytes
    path = infer_path(label, tail, INFER)
    answer = await send_request(visit, label, "POST", path, data, kind)
    outputs = documents_in(answer.body)[-1].get("outputs") or ()
    found = {**playground.answer_of(answer, ()), **seen_in(outputs)}
    return JSONResponse(found, 200, PRIVATE)


def picture_in(text: str) -> bytes:
    """The file in a field of the form, in URL-safe base64. Raises ControlApiError beside it."""
    try:
        data = base64.b64decode(text, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise ControlApiError(422, "invalid", "this picture cannot be read", "picture") from None
    if not data:
        raise ControlApiError(422, "invalid", "choose a picture", "picture")
    if len(data) > MOST_PICTURE_BYTES:
        wrong = f"a picture has {MOST_PICTURE_BYTES >> 20} MiB at most here"
        raise ControlApiError(422, "invalid", wrong, "picture")
    return data


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
                seen += [row for row in listed[:MOST_SEEN] if _is_drawn(row, name)]
    if not any(found.values()):
        data = {one.get("name"): one["data"] for one in rows}
        pairs = zip(data.get("LABELS", ()), data.get("SCORES", ()), strict=False)
        listed = [{"label": label, "score": score} for label, score in pairs]
        found["labels"] = [row for row in listed if _is_drawn(row, "labels")]
    return found


def _document(text: object) -> Row:
    try:
        found = json.loads(text) if isinstance(text, str) and text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_drawn(row: object, name: str) -> bool:
    if not isinstance(row, Mapping) or not isinstance(row.get("label"), str):
        return False
    numbers = [row.get("score")]
    if name == "detections":
        box = row.get("box")
        if not isinstance(box, list) or len(box) != 4:
            return False
        numbers += box
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)


SCREENS = ()
ACTS = (
    FormAction(
        path=playground.PATH + "/picture",
        screen=playground.PATH,
        run=send_picture,
        template="try.html",
        most_bytes=MOST_FORM_BYTES,
    ),
)
