"""REST beside the infer verb: health, metadata, config, statistics, and the table of all paths.

Paths, verbs and texts are Triton's (KServe v2 and its extensions). The infer verb never comes
here: `server.rest.infer` answers it inside the HTTP protocol.
"""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server import describe
from server.access.permissions import is_openai
from server.codec.forwarding import HeaderForwarding
from server.dataplane import DataPlane, parse_version
from server.errors import InvalidRequest
from server.model_queries import ModelQueries
from server.rest.endpoint import BodyLimits, EndpointRow, json_response, model_of, route
from server.rest.endpoints.feedback import feedback_rows
from server.rest.endpoints.repository import repository_rows
from server.rest.endpoints.shared_memory import shared_memory_rows
from server.rest.endpoints.trace import trace_rows
from server.rest.errors import error_body
from server.rest.generate import generate_rows
from server.rest.openai_errors import openai_body
from server.rest.openapi.pages import PAGES, page_rows
from server.rest.openapi.paths import RestOperation
from server.statistics import statistics_json


def rest_app(
    dataplane: DataPlane,
    limits: BodyLimits,
    forwarding: HeaderForwarding | None = None,
    more: Sequence[Route] = (),
    described: Sequence[RestOperation] = (),
) -> Starlette:
    """The application for all of REST but infer, and `more`. Each route has its twin in
    `server.rest.openapi.build`; those of `more` are `described`."""
    rest = _ServerEndpoints(dataplane)
    model, version = "/v2/models/{model}", "/versions/{version}"
    rows = [
        EndpointRow("/", rest.welcome, "GET"),
        EndpointRow("/v2", rest.server_metadata, "GET"),
        EndpointRow("/v2/health/live", rest.live, "GET"),
        EndpointRow("/v2/health/ready", rest.ready, "GET"),
        EndpointRow("/v2/models/stats", rest.statistics, "GET"),
    ]
    for prefix in (model, model + version):
        rows += [
            EndpointRow(prefix, rest.model_metadata, "GET"),
            EndpointRow(prefix + "/ready", rest.model_ready, "GET"),
            EndpointRow(prefix + "/config", rest.model_config, "GET"),
            EndpointRow(prefix + "/stats", rest.statistics, "GET"),
            EndpointRow(prefix + "/infer", rest.infer_elsewhere, "POST"),
        ]
    rows += repository_rows(dataplane, limits)
    rows += page_rows(dataplane, described)
    rows += generate_rows(dataplane, limits, forwarding)
    rows += feedback_rows(dataplane, limits.json_depth)
    rows += shared_memory_rows(dataplane.shared_memory, limits.json_depth)
    rows += trace_rows(dataplane, limits.json_depth)
    routes = [*map(route, rows), *more]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False  # a path that is not in the table is nobody's
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if is_openai(request.url.path):
        body = openai_body(
            error.status_code, f"{error.detail}: {request.method} {request.url.path}"
        )
        return Response(body, error.status_code, media_type="application/json")
    return Response(error_body(error.detail), error.status_code, media_type="application/json")


class _ServerEndpoints:
    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._queries = ModelQueries(dataplane)

    async def welcome(self, request: Request) -> Response:
        links = {"metadata": "/v2", "ready": "/v2/health/ready", **PAGES}
        found = {"name": self._dataplane.name, "version": self._dataplane.version}
        return json_response({**found, "links": links})

    async def server_metadata(self, request: Request) -> Response:
        dataplane = self._dataplane
        offers_cuda = dataplane.shared_memory.offers_cuda
        return json_response(
            describe.server_metadata_json(dataplane.name, dataplane.version, offers_cuda)
        )

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        if self._dataplane.lifecycle.stopping:
            return Response(status_code=503)
        return Response(status_code=200 if self._queries.ready() else 400)

    async def model_metadata(self, request: Request) -> Response:
        name, version = model_of(request)
        served = self._queries.find(name, version)
        numbers = (
            [served.version.number]
            if version or served.version.name != name
            else describe.versions_of(name, self._dataplane.models.served())
        )
        return json_response(describe.metadata_json(served, numbers))

    async def model_ready(self, request: Request) -> Response:
        ready = await self._queries.model_ready(*model_of(request))
        return Response(status_code=200 if ready else 400)

    async def model_config(self, request: Request) -> Response:
        return json_response(describe.config_json(self._queries.find(*model_of(request))))

    async def statistics(self, request: Request) -> Response:
        return json_response(statistics_json(self._queries.statistics(*model_of(request))))

    async def infer_elsewhere(self, request: Request) -> Response:
        """Only what `server.rest.protocol` did not know for an infer path comes here."""
        _, version = model_of(request)
        if version:
            parse_version(version)
        raise InvalidRequest(
            "write the path as /v2/models/MODEL/infer or /v2/models/MODEL/versions/VERSION/infer; "
            "nothing but the model's name may have percent-escapes"
        )
