"""Git LFS below `/git/NAME.git/info/lfs/`: which objects to move, and the answers about them.

The objects themselves come and go in `control.git.lfs_transfers`, by links that are signed
here.
"""

import re
import time

import orjson
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request

from control.access.scopes import Action
from control.git.asgi_exchange import AsgiExchange
from control.git.authorization import check_allowed, enter
from control.git.lfs_transfers import SCHEME, LfsTransfers
from control.git.paths import LFS, PREFIX
from control.http_errors import UnsupportedMediaType
from control.services import ControlServices
from repository.lfs import batch, tokens
from repository.lfs.batch import MEDIA_TYPE, LfsBatch, LfsLimits, LfsObjectStatus, Links
from repository.lfs.pointer import is_oid
from repository.lfs.store import LfsStore
from repository.lfs.tokens import LIFETIME_S, Operation

ACTIONS = {"upload": Action.PUSH, "download": Action.PULL}

_MOST_BATCH_BYTES = 2**20
_OBJECT = re.compile(r"objects/([0-9a-f]{64})(/verify)?")


class LfsApi:
    """Answers everything below info/lfs/ of all repositories."""

    def __init__(self, services: ControlServices, secret: bytes, stall_s: float) -> None:
        self._services = services
        self._secret = secret
        self._store = LfsStore(services.facts.store)
        self._transfers = LfsTransfers(services, self._store, secret, stall_s)

    async def serve(self, exchange: AsgiExchange, name: str, rest: str) -> None:
        """`name` is the repository's, `rest` what follows info/lfs/."""
        found = _OBJECT.fullmatch(rest)
        match exchange.request.method, rest:
            case "POST", "objects/batch":
                await self._batch(exchange, name)
            case "PUT", _ if found and not found[2]:
                await self._transfers.receive(exchange, name, found[1])
            case "GET", _ if found and not found[2]:
                await self._transfers.send(exchange, name, found[1])
            case "POST", _ if found and found[2]:
                await self._transfers.verify(exchange, name, found[1])
            case _, "locks" | "locks/verify":
                await enter(self._services, exchange.request, Action.PULL, name, True)
                raise HTTPException(404, "this server keeps no locks of files")
            case method, _:
                raise HTTPException(404, f"Git LFS asks for no {method} of '{rest:.100}' here")

    async def _batch(self, exchange: AsgiExchange, name: str) -> None:
        _check_type(exchange.request)
        visit = await enter(self._services, exchange.request, Action.PULL, name)
        budget = visit.repository.settings.budgets.max_lfs_bytes
        limits = LfsLimits(object_bytes=budget)
        lfs_batch = batch.parse(await exchange.incoming.whole(_MOST_BATCH_BYTES), limits)
        check_allowed(visit.principal, ACTIONS[lfs_batch.operation], name)
        object_status = await to_thread.run_sync(
            self._object_status, name, lfs_batch, limiter=self._services.threads
        )
        answer = batch.respond(
            lfs_batch, object_status, self._links(exchange.request, name), limits
        )
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
        await exchange.outgoing.whole(200, headers, orjson.dumps(answer))

    def _object_status(self, name: str, lfs_batch: LfsBatch) -> LfsObjectStatus:
        oids = {one.oid for one in lfs_batch.objects if is_oid(one.oid)}
        sizes = {oid: self._store.size(name, oid) for oid in oids}
        return LfsObjectStatus({oid: size for oid, size in sizes.items() if size is not None})

    def _links(self, request: Request, name: str) -> Links:
        base, now = f"{base_url(request, self._services)}{PREFIX}/{name}.git/{LFS}", time.time()

        def link(
            operation: Operation, oid: str, size_bytes: int, ending: str = ""
        ) -> batch.TransferAction:
            scope = tokens.LfsTokenScope(operation, name, oid, size_bytes)
            header = {"Authorization": f"{SCHEME}{tokens.sign(self._secret, scope, now)}"}
            return batch.TransferAction(f"{base}objects/{oid}{ending}", header, LIFETIME_S)

        return Links(
            upload=lambda oid, size: link("upload", oid, size),
            verify=lambda oid, size: link("verify", oid, size, "/verify"),
            download=lambda oid, size: link("download", oid, size),
        )


def base_url(request: Request, services: ControlServices) -> str:
    """Where the client reaches us, without a slash: as told, or as it did this time."""
    if services.facts.public_url:
        return services.facts.public_url.rstrip("/")
    return f"{request.scope['scheme']}://{request.headers.get('host', 'localhost')}"


def _check_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (MEDIA_TYPE, "application/json"):
        raise UnsupportedMediaType(f"the Content-Type of a batch request must be {MEDIA_TYPE}")
