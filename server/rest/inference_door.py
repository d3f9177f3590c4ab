"""The REST front end of inference: the infer verb inside the protocol, other paths as ASGI.

Apart from `server.rest.listener`, so that the control process can listen without a data plane.
"""

from typing import Any, NamedTuple

from server.access.sites import SitePolicy
from server.codec.forwarding import Forwarding
from server.dataplane import DataPlane
from server.logs.access import AccessLog
from server.place import Place
from server.rest.compression import CompressedApp
from server.rest.connection import Wire
from server.rest.cors import with_cors
from server.rest.endpoint import Limits
from server.rest.listener import Listener, start
from server.rest.porch import (
    GatedApp,
    LoggedApp,
    LoggedExchange,
    LoggedTurnedAway,
    RestrictedApp,
    SiteGuardApp,
)
from server.rest.protocol import InferProtocol, SpellingProtocol
from server.settings.restricted import Locks


class Porch(NamedTuple):
    """What stands before the REST API; each part is absent unless asked for."""

    locks: Locks
    sites: SitePolicy = SitePolicy()
    forwarding: Forwarding | None = None
    log: AccessLog | None = None


def guarded(app: Any, sites: SitePolicy) -> Any:
    """`app` for those whom `sites` admits, with the answers to browsers' questions (CORS)."""
    return with_cors(SiteGuardApp(app, sites), sites)


async def start_inference(
    app: Any, dataplane: DataPlane, limits: Limits, wire: Wire, place: Place, porch: Porch
) -> Listener:
    """Serve inference, and `app` for every other path. Raises OSError."""
    app = GatedApp(CompressedApp(app, limits.body_bytes), dataplane)
    facts: dict[str, Any] = {"dataplane": dataplane, "limits": limits, "wire": wire}
    facts["forwarding"] = porch.forwarding
    facts["lock"] = porch.locks.get("inference")
    facts["sites"] = porch.sites
    if porch.locks:
        app = RestrictedApp(app, porch.locks)
    app = guarded(app, porch.sites)
    if porch.log is not None:
        app = LoggedApp(app, porch.log)
        facts.update(log=porch.log, exchange=LoggedExchange, refusal=LoggedTurnedAway)
    base = InferProtocol if porch.forwarding is None else SpellingProtocol
    return await start(app, place, type("Inference", (base,), facts))
