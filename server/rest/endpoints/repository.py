"""REST's model repository extension: the index, load and unload.

`server.rest.app` puts `repository_rows` into its table. Verbs, bodies and texts are Triton's.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server import describe
from server.codec.json_text import load_document, unparsable
from server.dataplane import DataPlane
from server.errors import Unsupported
from server.model_queries import ModelQueries
from server.overrides import Override, of_json
from server.rest.endpoint import BodyLimits, EndpointRow, json_response, read_body

_BODY_LIMIT_BYTES = 1 << 20
"""Of a request other than a load, which holds a few parameters at most."""
_LARGE_BYTES = 1 << 16
"""Bodies from here on, which bring a model's files, are read on a thread."""
_REMEDY = "; use --http-max-input-size to raise it"


def repository_rows(dataplane: DataPlane, limits: BodyLimits) -> list[EndpointRow]:
    """The rows of the extension, with and without the name of a repository."""
    rest = _RepositoryEndpoints(dataplane, limits)
    plain, of_repository = "/v2/repository", "/v2/repository/{repository}"
    return [
        EndpointRow(f"{plain}/index", rest.index, "POST"),
        EndpointRow(f"{plain}/models/{{model}}/load", rest.load, "POST"),
        EndpointRow(f"{plain}/models/{{model}}/unload", rest.unload, "POST"),
        EndpointRow(f"{of_repository}/index", rest.named_repository, "POST"),
        EndpointRow(f"{of_repository}/models/{{model}}/load", rest.named_repository, "POST"),
        EndpointRow(f"{of_repository}/models/{{model}}/unload", rest.named_repository, "POST"),
    ]


class _RepositoryEndpoints:
    def __init__(self, dataplane: DataPlane, limits: BodyLimits) -> None:
        self._models = dataplane.models
        self._queries = ModelQueries(dataplane)
        self._limits = limits

    async def index(self, request: Request) -> Response:
        document = self._document(await read_body(request, _BODY_LIMIT_BYTES))
        ready_only = _boolean(document, "ready")
        return json_response(describe.index_json(self._queries.index(ready_only)))

    async def load(self, request: Request) -> Response:
        """The body may bring a config and a model's files: it may be as large as an infer body."""
        body = await read_body(request, self._limits.body_bytes, _REMEDY)
        large = len(body) >= _LARGE_BYTES
        override = await asyncio.to_thread(self._override, body) if large else self._override(body)
        await self._models.load(request.path_params["model"], override)
        return Response()

    async def unload(self, request: Request) -> Response:
        document = self._document(await read_body(request, _BODY_LIMIT_BYTES))
        dependents = _boolean(_parameters(document), "unload_dependents")
        await self._models.unload(request.path_params["model"], dependents)
        return Response()

    async def named_repository(self, request: Request) -> Response:
        raise Unsupported("'repository_name' specification is not supported")

    def _override(self, body: bytes) -> Override | None:
        return of_json(_parameters(self._document(body)))

    def _document(self, body: bytes) -> dict[str, Any]:
        return load_document(body, self._limits.json_depth) if body.strip() else {}


def _parameters(document: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict):
        raise unparsable("parameters", parameters, "object")
    return parameters


def _boolean(document: Mapping[str, Any], name: str) -> bool:
    value = document.get(name, False)
    if not isinstance(value, bool):
        raise unparsable(name, value, "boolean")
    return value
