"""REST's feedback path: what came of answers, for the experiments they were part of. Starlette.

`server.rest.app` puts `feedback_rows` into its table; the values go over the link to the control
process, which joins them with what the units have seen.
"""

import time

from starlette.requests import Request
from starlette.responses import Response

from server.codec.json_text import load_document
from server.dataplane import DataPlane
from server.rest.endpoint import EndpointRow, json_response, model_of, read_body
from server.rest.errors import error_body
from server.routing.experiments.feedback import parse

_BODY_LIMIT = 1 << 20
"""Bytes a body may have: a thousand values with their stamps."""

COME_BACK_S = 2


def feedback_rows(dataplane: DataPlane, json_depth: int) -> list[EndpointRow]:
    """The one path there is: values are of a public name, not of a version."""
    endpoint = _FeedbackEndpoint(dataplane, json_depth)
    return [EndpointRow("/v2/models/{model}/feedback", endpoint.take, "POST")]


class _FeedbackEndpoint:
    def __init__(self, dataplane: DataPlane, json_depth: int) -> None:
        self._dataplane = dataplane
        self._json_depth = json_depth

    async def take(self, request: Request) -> Response:
        body = await read_body(request, _BODY_LIMIT, "; send fewer values at once")
        queue = self._dataplane.routing.feedback
        name, _ = model_of(request)
        document = load_document(body, self._json_depth)
        values = parse(document, name, queue.stamp_key, time.time())
        if queue.offer(values):
            return json_response({"accepted": len(values)})
        return Response(
            error_body("too many values wait for the control process already; retry later"),
            503,
            {"Retry-After": str(COME_BACK_S)},
            "application/json",
        )
