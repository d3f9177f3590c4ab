"""REST's shared-memory paths: register, status and unregister of regions. Starlette.

`server.rest.app` puts `shared_memory_rows` into its table; the regions are those of
`server.shared_memory.regions`.
"""

from base64 import b64decode
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.codec.json_text import load_document
from server.errors import InvalidRequest
from server.rest.endpoint import EndpointRow, json_response, read_body
from server.shared_memory.cuda_region import CudaRegion
from server.shared_memory.regions import SharedMemory
from server.shared_memory.system import SystemRegion

_BODY_LIMIT = 1 << 16
"""Bytes the body of a registration may have: a key and two numbers."""


def shared_memory_rows(shared: SharedMemory, json_depth: int) -> list[EndpointRow]:
    """Both extensions, for one region and for all of them."""
    regions = _RegionEndpoints(shared, json_depth)
    rows: list[EndpointRow] = []
    for region in ("", "/region/{region}"):
        system, cuda = "/v2/systemsharedmemory" + region, "/v2/cudasharedmemory" + region
        rows += [
            EndpointRow(system + "/status", regions.status, "GET"),
            EndpointRow(system + "/register", regions.register, "POST"),
            EndpointRow(system + "/unregister", regions.unregister, "POST"),
            EndpointRow(cuda + "/status", regions.cuda_status, "GET"),
            EndpointRow(cuda + "/register", regions.register_cuda, "POST"),
            EndpointRow(cuda + "/unregister", regions.unregister_cuda, "POST"),
        ]
    return rows


class _RegionEndpoints:
    def __init__(self, shared: SharedMemory, json_depth: int) -> None:
        self._shared = shared
        self._json_depth = json_depth

    async def status(self, request: Request) -> Response:
        return json_response(
            [
                {
                    "name": region.name,
                    "key": region.key,
                    "offset": region.offset,
                    "byte_size": region.byte_size,
                }
                for region in self._shared.regions(SystemRegion, _name(request))
            ]
        )

    async def register(self, request: Request) -> Response:
        self._shared.check_allowed()
        document = load_document(await read_body(request, _BODY_LIMIT), self._json_depth)
        offset = _count(document, "offset") if "offset" in document else 0
        self._shared.register(_name(request), _key(document), offset, _count(document, "byte_size"))
        return Response()

    async def unregister(self, request: Request) -> Response:
        self._shared.unregister(SystemRegion, _name(request))
        return Response()

    async def cuda_status(self, request: Request) -> Response:
        return json_response(
            [
                {
                    "name": region.name,
                    "device_id": region.device_id,
                    "byte_size": region.byte_size,
                }
                for region in self._shared.regions(CudaRegion, _name(request))
            ]
        )

    async def register_cuda(self, request: Request) -> Response:
        name = _name(request)
        self._shared.check_cuda(name)
        document = load_document(await read_body(request, _BODY_LIMIT), self._json_depth)
        await self._shared.register_cuda(
            name, _handle(document), _count(document, "device_id"), _count(document, "byte_size")
        )
        return Response()

    async def unregister_cuda(self, request: Request) -> Response:
        self._shared.unregister(CudaRegion, _name(request))
        return Response()


def _name(request: Request) -> str:
    name: str = request.path_params.get("region", "")
    return name


def _key(document: dict[str, Any]) -> str:
    key = _field(document, "key")
    if type(key) is not str:
        raise InvalidRequest("Unable to parse 'key': attempt to access JSON non-string as string")
    return key


def _handle(document: dict[str, Any]) -> bytes:
    raw = _field(document, "raw_handle")
    text = raw.get("b64") if type(raw) is dict else None
    if type(text) is not str:
        raise InvalidRequest("Unable to parse 'b64': attempt to access JSON non-string as string")
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
        ) from error


def _count(document: dict[str, Any], field: str) -> int:
    count = _field(document, field)
    if type(count) is not int or count < 0:
        raise InvalidRequest(
            f"Unable to parse '{field}': attempt to access JSON non-unsigned-integer as "
            "unsigned-integer"
        )
    return count


def _field(document: dict[str, Any], field: str) -> Any:
    if field not in document:
        raise InvalidRequest(f"Shared memory register request has no '{field}' field")
    return document[field]
