"""What a request says beside its path: query, body, If-Match; checked before anything is done."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from control.api.body_fields import LARGEST, MAX_TEXT, check_texts, read_fields
from control.api.call import Operation, Param
from control.http_errors import MalformedRequest, RequestBodyTooLarge, UnsupportedMediaType
from control.paging import MOST, USUAL

MAX_BODY_BYTES = 2**20
PAGING = (
    Param("limit", f"Items at most; {USUAL} if not given.", int,
          {"minimum": 1, "maximum": MOST}),
    Param("cursor", "`next` of the page before."),
)  # fmt: skip
_WHOLE = re.compile(r"-?\d{1,19}")
_BOOLS = {"true": True, "false": False}


def read_query(operation: Operation, pairs: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    """The parameters by name, those not given left out. Raises MalformedRequest."""
    known = {one.name: one for one in params_of(operation)}
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            there = ", ".join(known) or "none"
            raise MalformedRequest(f"there is no parameter '{name[:100]}'; there are {there}", name)
        if name in found:
            raise MalformedRequest(f"the parameter '{name}' is given twice", name)
        found[name] = _param(known[name], text)
    return found


def params_of(operation: Operation) -> tuple[Param, ...]:
    """Every query parameter the operation takes."""
    return operation.query + (PAGING if operation.list_of else ())


def check_path(path: Mapping[str, str]) -> None:
    """Raises MalformedRequest for a name no thing can have."""
    for name, text in path.items():
        if len(text) > MAX_TEXT:
            raise MalformedRequest(f"{name} has {len(text)} characters; at most {MAX_TEXT}", name)
        check_texts(text, name)


async def read_body(operation: Operation, request: Request) -> Any:
    """The body as the operation's Struct, None where it takes none.

    Raises MalformedRequest, RequestBodyTooLarge, UnsupportedMediaType.
    """
    raw = await _bytes(request)
    if operation.takes is None:
        if raw:
            raise MalformedRequest("there is a body, and this takes none")
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnsupportedMediaType(
            f"the body is '{kind[:80]}'; send JSON with Content-Type: application/json",
            "Content-Type",
        )
    return read_fields(operation.takes, _document(raw))


async def _bytes(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise RequestBodyTooLarge(
                    f"the body is larger than the maximum of {MAX_BODY_BYTES} bytes"
                )
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise MalformedRequest("the body ended early") from error
    return b"".join(chunks)


def _document(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(
            f"the body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None


def _param(param: Param, text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise MalformedRequest(
            f"{param.name} has {len(text)} characters; at most {MAX_TEXT}", param.name
        )
    check_texts(text, param.name)
    if param.kind is int:
        return _whole(param, text)
    if param.kind is bool:
        if text not in _BOOLS:
            raise MalformedRequest(f"{param.name} is '{text}'; give true or false", param.name)
        return _BOOLS[text]
    if param.kind is datetime:
        return _moment(param, text)
    return text


def _whole(param: Param, text: str) -> int:
    least = param.schema.get("minimum", 0)
    most = param.schema.get("maximum", LARGEST)
    if not (text.isascii() and _WHOLE.fullmatch(text)) or not least <= int(text) <= most:
        raise MalformedRequest(
            f"{param.name} is '{text}'; give a whole number from {least} to {most}", param.name
        )
    return int(text)


def _moment(param: Param, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        known = moment.tzinfo is not None and moment.astimezone(UTC)
    except (ValueError, OverflowError):  # what is before the year 1 in UTC is no moment
        known = False
    if not known:
        raise MalformedRequest(
            f"{param.name} is '{text}'; give a moment with its zone, as 2026-11-21T04:24:00Z",
            param.name,
        )
    return known
