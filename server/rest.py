"""REST beside the infer verb: health, metadata, config, statistics, repository. Starlette.

Paths, verbs and texts are Triton's (KServe v2 and its extensions). The infer verb never comes
here: `server.infer_http` answers it inside the HTTP protocol.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server import describe
from server.codec_json import load_document
from server.dataplane import DataPlane
from server.errors import InvalidRequest, Unsupported
from server.rest_errors import error_body, visible
from server.statistics import statistics_json

_BODY_LIMIT = 1 << 20
"""Bytes the body of a repository request may have; it holds a few parameters at most."""

Endpoint = Callable[[Request], Awaitable[Response]]


def rest_app(dataplane: DataPlane, json_depth: int) -> Starlette:
    """The application for every REST path but infer."""
    rest = _Rest(dataplane, json_depth)
    model, version = "/v2/models/{model}", "/versions/{version:int}"
    routes = [
        _route("/v2", rest.server_metadata, "GET"),
        _route("/v2/health/live", rest.live, "GET"),
        _route("/v2/health/ready", rest.ready, "GET"),
        _route("/v2/models/stats", rest.statistics, "GET"),
        _route("/v2/repository/index", rest.index, "POST"),
        _route("/v2/repository/{repository}/index", rest.foreign_repository, "POST"),
        _route("/v2/repository/models/{model}/load", rest.load, "POST"),
        _route("/v2/repository/models/{model}/unload", rest.unload, "POST"),
        _route("/v2/repository/{repository}/models/{model}/load", rest.foreign_repository, "POST"),
        _route(
            "/v2/repository/{repository}/models/{model}/unload", rest.foreign_repository, "POST"
        ),
    ]
    for prefix in (model, model + version):
        routes += [
            _route(prefix, rest.model_metadata, "GET"),
            _route(prefix + "/ready", rest.model_ready, "GET"),
            _route(prefix + "/config", rest.model_config, "GET"),
            _route(prefix + "/stats", rest.statistics, "GET"),
            _route(prefix + "/infer", rest.infer_elsewhere, "POST"),
        ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


def _route(path: str, endpoint: Endpoint, method: str) -> Route:
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            status, text = visible(error)
            return Response(error_body(text), status, media_type="application/json")

    return Route(path, answered, methods=[method])


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(error_body(error.detail), error.status_code, media_type="application/json")


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


class _Rest:
    def __init__(self, dataplane: DataPlane, json_depth: int) -> None:
        self._dataplane = dataplane
        self._json_depth = json_depth

    async def server_metadata(self, request: Request) -> Response:
        return _json(describe.server_metadata_json(self._dataplane.name, self._dataplane.version))

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        if self._dataplane.stopping:
            return Response(status_code=503)
        return Response(status_code=200 if self._dataplane.ready() else 400)

    async def model_metadata(self, request: Request) -> Response:
        name, version = _model_of(request)
        served = self._dataplane.find(name, version)
        numbers = (
            [served.version.number]
            if version
            else describe.versions_of(name, self._dataplane.models.served())
        )
        return _json(describe.metadata_json(served, numbers))

    async def model_ready(self, request: Request) -> Response:
        ready = self._dataplane.model_ready(*_model_of(request))
        return Response(status_code=200 if ready else 400)

    async def model_config(self, request: Request) -> Response:
        return _json(describe.config_json(self._dataplane.find(*_model_of(request))))

    async def statistics(self, request: Request) -> Response:
        return _json(statistics_json(self._dataplane.statistics(*_model_of(request))))

    async def index(self, request: Request) -> Response:
        asked = await self._document(request)
        ready_only = asked.get("ready", False)
        if not isinstance(ready_only, bool):
            raise InvalidRequest(
                "Unable to parse 'ready': attempt to access JSON non-boolean as boolean"
            )
        return _json(describe.index_json(self._dataplane.index(ready_only)))

    async def load(self, request: Request) -> Response:
        parameters = (await self._document(request)).get("parameters") or {}
        if parameters:
            names = ", ".join(sorted(parameters))
            raise Unsupported(
                f"load of '{request.path_params['model']}': override parameters ({names}) are not "
                "offered yet; change the files in the repository instead"
            )
        await self._dataplane.models.load(request.path_params["model"])
        return Response()

    async def unload(self, request: Request) -> Response:
        parameters = (await self._document(request)).get("parameters") or {}
        dependents = parameters.get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise InvalidRequest(
                "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"
            )
        await self._dataplane.models.unload(request.path_params["model"], dependents)
        return Response()

    async def foreign_repository(self, request: Request) -> Response:
        raise Unsupported("'repository_name' specification is not supported")

    async def infer_elsewhere(self, request: Request) -> Response:
        raise RuntimeError("infer is answered by server.infer_http and never comes here")

    async def _document(self, request: Request) -> dict[str, Any]:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_LIMIT:
                raise InvalidRequest(f"the body is larger than the maximum of {_BODY_LIMIT} bytes")
        return load_document(bytes(body), self._json_depth) if body.strip() else {}


def _model_of(request: Request) -> tuple[str, str]:
    """Name and version of the path, each "" where the path has none."""
    params = request.path_params
    return params.get("model", ""), str(params.get("version", ""))
