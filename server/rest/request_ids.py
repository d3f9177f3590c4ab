"""The id of a request on paths that are an ASGI application's, and the header that says it."""

from collections.abc import MutableMapping
from typing import Any

from server.request_ids import NAME, id_in, id_text, next_number


def request_id_of(scope: MutableMapping[str, Any]) -> str:
    """The id of the request with this ASGI scope; the same whenever it is asked for."""
    request_id: str | None = scope.get("request_id")
    if request_id is None:
        request_id = scope["request_id"] = id_in(scope["headers"]) or id_text(number_of(scope))
    return request_id


def number_of(scope: MutableMapping[str, Any]) -> int:
    """Our number of the request, whatever id its client gave it."""
    number: int | None = scope.get("request_number")
    if number is None:
        number = scope["request_number"] = next_number()
    return number


class RequestIdMiddleware:
    """Has every answer of the application say its request's id."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = request_id_of(scope).encode()

        async def named(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (NAME, request_id)]
            await send(message)

        await self._app(scope, receive, named)
