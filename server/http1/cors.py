"""Answer browsers that ask whether a page of another origin may call REST: CORS (Fetch standard).

Starlette's middleware answers preflights and marks the answers of all paths but infer, whose lines
`response_lines` makes. Nothing rides on cookies here, so credentials are not allowed: a page that
has a token sends it itself.
"""

from collections.abc import Iterable
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from control.authentication.origins import ANY, SAFE
from server.access.sites import SitePolicy
from server.routing.experiments.route_experiments import STAMP_NAME
from server.routing.table import HEADER_NAME

_EXPOSED = (
    "Inference-Header-Content-Length",
    "Retry-After",
    "X-Request-Id",
    HEADER_NAME,
    STAMP_NAME,
)
"""Headers of answers that a page may read, beside those that it always may."""
_METHODS = (*sorted(SAFE), "POST", "PUT", "DELETE")
_PREFLIGHT_KEPT_S = 600


def with_cors(app: Any, sites: SitePolicy) -> Any:
    """`app`, answering preflights of the origins of `sites`; itself where there are none."""
    if not sites.origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(sites.origins),
        allow_methods=_METHODS,
        allow_headers=(ANY,),
        expose_headers=_EXPOSED,
        max_age=_PREFLIGHT_KEPT_S,
        allow_private_network=True,
    )


def origin_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The Origin among headers whose names are in lower case; b"" for none."""
    return next((value for name, value in headers if name == b"origin"), b"")


def response_lines(sites: SitePolicy, origin: bytes) -> bytes:
    """The lines of an answer's head that let a page of `origin` read it; none where it may not."""
    if not origin or not sites.admits(origin.decode("latin-1")):
        return b""
    allowed, vary = (b"*", b"") if ANY in sites.origins else (origin, b"Vary: Origin\r\n")
    exposed = ", ".join(_EXPOSED).encode()
    return b"Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: %s\r\n%s" % (
        allowed,
        exposed,
        vary,
    )
