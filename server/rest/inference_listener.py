"""The REST front end of inference: the infer verb inside the protocol, other paths as ASGI.

Apart from `server.http1.listener`, so that the control process can listen without a data plane.
"""

from typing import Any, NamedTuple

from server.access.sites import SitePolicy
from server.codec.forwarding import HeaderForwarding
from server.codec.infer_templates import AnswerTemplates, BodyTemplates
from server.dataplane import DataPlane
from server.http1.connection import ConnectionLimits
from server.http1.cors import with_cors
from server.http1.listener import HttpListener, start
from server.listen_address import ListenAddress
from server.logs.access import AccessLog
from server.rest.compression import CompressionMiddleware
from server.rest.endpoint import BodyLimits
from server.rest.head_templates import HeadTemplates
from server.rest.middleware import (
    AccessLogMiddleware,
    AuthorizationMiddleware,
    LoggedInferExchange,
    LoggedRejectedExchange,
    RestrictedApiMiddleware,
    SiteMiddleware,
)
from server.rest.protocol import HeaderCaseProtocol, InferProtocol
from server.rest.request_ids import RequestIdMiddleware
from server.settings.restricted import Locks


class RestMiddleware(NamedTuple):
    """What stands before the REST API; each part is absent unless asked for."""

    locks: Locks
    sites: SitePolicy = SitePolicy()
    forwarding: HeaderForwarding | None = None
    log: AccessLog | None = None


def guarded(app: Any, sites: SitePolicy) -> Any:
    """`app` for those whom `sites` admits, with the answers to browsers' questions (CORS)."""
    return with_cors(SiteMiddleware(app, sites), sites)


async def start_inference(
    app: Any,
    dataplane: DataPlane,
    limits: BodyLimits,
    wire: ConnectionLimits,
    place: ListenAddress,
    middleware: RestMiddleware,
) -> HttpListener:
    """Serve inference, and `app` for every other path. Raises OSError."""
    app = AuthorizationMiddleware(CompressionMiddleware(app, limits.body_bytes), dataplane)
    facts: dict[str, Any] = {"dataplane": dataplane, "limits": limits, "wire": wire}
    facts.update(templates=HeadTemplates(), bodies=BodyTemplates(), answers=AnswerTemplates())
    facts["forwarding"] = middleware.forwarding
    facts["lock"] = middleware.locks.get("inference")
    facts["sites"] = middleware.sites
    if middleware.locks:
        app = RestrictedApiMiddleware(app, middleware.locks)
    app = RequestIdMiddleware(guarded(app, middleware.sites))
    if middleware.log is not None:
        app = AccessLogMiddleware(app, middleware.log)
        facts.update(
            log=middleware.log, exchange=LoggedInferExchange, refusal=LoggedRejectedExchange
        )
    base = InferProtocol if middleware.forwarding is None else HeaderCaseProtocol
    return await start(app, place, type("Inference", (base,), facts))
