"""REST's description of itself: `/openapi.json` for machines, `/docs` for people. Starlette.

The page is one file: no script, nothing from elsewhere, and a policy that forbids both.
"""

import base64
import hashlib
from collections.abc import Sequence

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.dataplane import DataPlane
from server.rest.endpoint import EndpointRow
from server.rest.openapi.build import document
from server.rest.openapi.docs_page import STYLE, page
from server.rest.openapi.paths import RestOperation

PAGES = {"openapi": "/openapi.json", "docs": "/docs"}

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_rows(dataplane: DataPlane, more: Sequence[RestOperation] = ()) -> Sequence[EndpointRow]:
    """Both paths; what they answer is rendered here, once. `more`: what is described beside
    KServe's."""
    described = document(dataplane.name, dataplane.version, more)
    text, html = orjson.dumps(described), page(described).encode()

    async def openapi(request: Request) -> Response:
        return Response(text, media_type="application/json")

    async def docs(request: Request) -> Response:
        return Response(html, media_type="text/html", headers=_HEADERS)

    return [EndpointRow(PAGES["openapi"], openapi, "GET"), EndpointRow(PAGES["docs"], docs, "GET")]
