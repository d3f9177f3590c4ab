"""The id of a request on OpenAI's paths: the client's, or one made here."""

import re
from collections.abc import Iterable, MutableMapping
from typing import Any
from uuid import uuid4

REQUEST_ID = "x-request-id"
_NAME = REQUEST_ID.encode()
_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id_of(scope: MutableMapping[str, Any]) -> str:
    """The id of the request with this ASGI scope; the same whenever it is asked for."""
    known: str | None = scope.get("request_id")
    if known is None:
        given = _given(scope["headers"])
        known = given if _GOOD_ID.fullmatch(given) else f"req_{uuid4().hex}"
        scope["request_id"] = known
    return known


def _given(headers: Iterable[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == _NAME), "")
