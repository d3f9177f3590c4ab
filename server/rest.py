"""REST beside the infer verb: health, metadata, config, statistics, and the table of all paths.

Paths, verbs and texts are Triton's (KServe v2 and its extensions). The infer verb never comes
here: `server.infer_http` answers it inside the HTTP protocol.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from server import describe
from server.dataplane import DataPlane
from server.forwarding import Forwarding
from server.infer_http import Limits
from server.rest_endpoint import Row, json_response, model_of, route
from server.rest_errors import error_body
from server.rest_generate import generate_rows
from server.rest_pages import PAGES, page_rows
from server.rest_repository import repository_rows
from server.rest_shared_memory import shared_memory_rows
from server.rest_trace import trace_rows
from server.statistics import statistics_json


def rest_app(
    dataplane: DataPlane, limits: Limits, forwarding: Forwarding | None = None
) -> Starlette:
    """The application for every REST path but infer. Each row has its twin in `server.openapi`."""
    rest = _Rest(dataplane)
    model, version = "/v2/models/{model}", "/versions/{version:int}"
    rows = [
        Row("/", rest.welcome, "GET"),
        Row("/v2", rest.server_metadata, "GET"),
        Row("/v2/health/live", rest.live, "GET"),
        Row("/v2/health/ready", rest.ready, "GET"),
        Row("/v2/models/stats", rest.statistics, "GET"),
    ]
    for prefix in (model, model + version):
        rows += [
            Row(prefix, rest.model_metadata, "GET"),
            Row(prefix + "/ready", rest.model_ready, "GET"),
            Row(prefix + "/config", rest.model_config, "GET"),
            Row(prefix + "/stats", rest.statistics, "GET"),
            Row(prefix + "/infer", rest.infer_elsewhere, "POST"),
        ]
    rows += repository_rows(dataplane, limits)
    rows += page_rows(dataplane)
    rows += generate_rows(dataplane, limits, forwarding)
    rows += shared_memory_rows(dataplane.shared_memory, limits.json_depth)
    rows += trace_rows(dataplane, limits.json_depth)
    routes = [route(row) for row in rows]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(error_body(error.detail), error.status_code, media_type="application/json")


class _Rest:
    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane

    async def welcome(self, request: Request) -> Response:
        links = {"metadata": "/v2", "ready": "/v2/health/ready", **PAGES}
        found = {"name": self._dataplane.name, "version": self._dataplane.version}
        return json_response({**found, "links": links})

    async def server_metadata(self, request: Request) -> Response:
        return json_response(
            describe.server_metadata_json(self._dataplane.name, self._dataplane.version)
        )

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        if self._dataplane.stopping:
            return Response(status_code=503)
        return Response(status_code=200 if self._dataplane.ready() else 400)

    async def model_metadata(self, request: Request) -> Response:
        name, version = model_of(request)
        served = self._dataplane.find(name, version)
        numbers = (
            [served.version.number]
            if version
            else describe.versions_of(name, self._dataplane.models.served())
        )
        return json_response(describe.metadata_json(served, numbers))

    async def model_ready(self, request: Request) -> Response:
        ready = self._dataplane.model_ready(*model_of(request))
        return Response(status_code=200 if ready else 400)

    async def model_config(self, request: Request) -> Response:
        return json_response(describe.config_json(self._dataplane.find(*model_of(request))))

    async def statistics(self, request: Request) -> Response:
        return json_response(statistics_json(self._dataplane.statistics(*model_of(request))))

    async def infer_elsewhere(self, request: Request) -> Response:
        raise RuntimeError("infer is answered by server.infer_http and never comes here")
