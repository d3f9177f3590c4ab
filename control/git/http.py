"""git over HTTP on the admin port: `/git/NAME.git/…`, fetching, pushing and Git LFS.

A push comes to its end in the hooks: they show the key from `PushKeys` to the hook listener.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

from control.access.scopes import Action
from control.authentication.hosts import check_host, check_origin
from control.authentication.identify import is_local
from control.clock import new_id
from control.git.asgi_exchange import (
    STALL_S,
    AsgiExchange,
    ClientGone,
    RequestBody,
    ResponseWriter,
    while_there,
)
from control.git.authorization import RepositoryAccess, enter
from control.git.lfs import LfsApi
from control.git.paths import LFS, GitPath, advertised, target_of
from control.git.push.pre_receive import PushContext
from control.git.push.push_keys import PushKeys
from control.git.push.unpack_reporter import UnpackReporter
from control.http_errors import (
    ErrorResponse,
    MalformedRequest,
    RequestBodyTooLarge,
    UnsupportedMediaType,
    trouble_of,
)
from control.services import ControlServices
from repository.findings import Finding
from repository.git.body import gunzip
from repository.git.commands import Commands
from repository.git.errors import GitError, GitFailed, GitTimedOut, TooManyCommands
from repository.git.hooks.hook import KEY_VARIABLE, SOCKET_VARIABLE
from repository.git.receive import GitService, ReceiveTiming, SmartHttp, protocol_variables
from repository.git.report import refusal, reported
from repository.lfs.batch import MEDIA_TYPE, error_body

ACTIONS = {GitService.UPLOAD: Action.PULL, GitService.RECEIVE: Action.PUSH}

CHALLENGE = 'Basic realm="modelyard", charset="UTF-8"'

NEVER_KEPT = {
    "Cache-Control": "no-cache, max-age=0, must-revalidate",
    "Expires": "Fri, 01 Jan 1980 00:00:00 GMT",
    "Pragma": "no-cache",
}

_COMMANDS_BYTES = 16 * 2**20
"""What a request may have beside its pack, and a fetch in all."""

_log = logging.getLogger(__name__)


class GitApp:
    """ASGI; what it raises travels as a sentence, which git and git-lfs show to their user."""

    def __init__(
        self,
        services: ControlServices,
        keys: PushKeys,
        secret: bytes,
        hook_socket: Path,
        pace: ReceiveTiming | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        """`secret` signs the links of Git LFS: all servers of a database share it."""
        self._services = services
        self._keys = keys
        self._hook_socket = hook_socket
        self._smart = SmartHttp(pace)
        self._lfs = LfsApi(services, secret, stall_s)
        self._stall_s = stall_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        incoming, outgoing = (
            RequestBody(receive, request.headers),
            ResponseWriter(send, self._stall_s),
        )
        exchange = AsgiExchange(request, incoming, outgoing)
        try:
            try:
                await self._serve(exchange)
            except Exception as error:  # noqa: BLE001 - the boundary: trouble_of() logs our faults
                await self._tell(error, exchange)
        except ClientGone:
            return

    async def _serve(self, exchange: AsgiExchange) -> None:
        request, facts = exchange.request, self._services.facts
        if not is_local(request):
            check_host(request.headers.get("host", ""), facts.hosts)
        check_origin(request.method, request.headers, facts.public_url)
        target = target_of(request.scope["raw_path"])
        match request.method, target.rest:
            case _, rest if target.is_lfs:
                await self._lfs.serve(exchange, target.repository, rest.removeprefix(LFS))
            case "GET", "info/refs":
                await self._advertise(exchange, target)
            case "POST", GitService.UPLOAD | GitService.RECEIVE as service:
                await self._exchange(exchange, target, GitService(service))
            case method, rest:
                raise HTTPException(404, f"git asks for no {method} of '{rest:.100}' here")

    async def _advertise(self, exchange: AsgiExchange, target: GitPath) -> None:
        request = exchange.request
        _check_version(request)
        service = advertised(request.scope["query_string"])
        visit = await enter(self._services, request, ACTIONS[service], target.repository)
        protocol = request.headers.get("git-protocol", "")
        content = await self._smart.advertise(visit.folder, service, protocol)
        kind = {"Content-Type": f"application/x-{service}-advertisement"}
        await exchange.outgoing.whole(200, NEVER_KEPT | kind, content)

    async def _exchange(self, exchange: AsgiExchange, target: GitPath, service: GitService) -> None:
        request = exchange.request
        _check_version(request)
        visit = await enter(self._services, request, ACTIONS[service], target.repository, True)
        _check_type(request, service)
        too_long = _too_long(visit, service, exchange.incoming)
        variables = protocol_variables(request.headers.get("git-protocol", ""))
        body = _inflated(exchange, _most_bytes(visit, service))
        if service is GitService.RECEIVE:
            await self._receive(exchange, visit, body, variables, too_long)
            return
        if too_long:
            raise RequestBodyTooLarge(too_long)
        answer = self._smart.rpc(visit.folder, service, body, variables)
        await self._pass(exchange, visit, service, answer)

    async def _receive(
        self,
        exchange: AsgiExchange,
        visit: RepositoryAccess,
        body: AsyncIterator[bytes],
        variables: dict[str, str],
        too_long: str,
    ) -> None:
        """A push: its commands are read on the way in, and git's verdict on the way back."""
        service, name = GitService.RECEIVE, visit.repository.name
        pushing, commands = PushContext(visit.principal, visit.address, name), Commands()
        pack_bytes = visit.repository.settings.budgets.max_pack_bytes
        unpacked = UnpackReporter(self._services.database, pushing, commands, pack_bytes)
        if too_long:
            await self._refuse_long(exchange, commands, body, unpacked, too_long)
            return
        with self._keys.issued(pushing) as key:
            variables |= {KEY_VARIABLE: key, SOCKET_VARIABLE: str(self._hook_socket)}
            answer = self._smart.rpc(visit.folder, service, commands.of(body), variables)
            try:
                await self._pass(exchange, visit, service, reported(answer, unpacked.explain))
            except TooManyCommands as error:
                if exchange.outgoing.started:
                    raise
                found = Finding(Path("push"), 0, 0, "E423", str(error))
                await self._refuse(exchange, commands, unpacked, found, "too many refs")

    async def _refuse_long(
        self,
        exchange: AsgiExchange,
        commands: Commands,
        body: AsyncIterator[bytes],
        unpacked: UnpackReporter,
        message: str,
    ) -> None:
        """A pack that says it is too long is not read; with what comes before it, git itself can
        be answered, which shows its user no more than the status of any other refusal."""
        try:
            async with asyncio.timeout(self._stall_s):
                async for _ in commands.of(body):
                    if commands.ended:
                        break
        except (TimeoutError, GitError):
            raise RequestBodyTooLarge(message) from None
        if not commands.updates:
            raise RequestBodyTooLarge(message)
        found = Finding(Path("pack"), 0, 0, "E413", message)
        await self._refuse(exchange, commands, unpacked, found, "pack too large")

    async def _refuse(
        self,
        exchange: AsgiExchange,
        commands: Commands,
        unpacked: UnpackReporter,
        found: Finding,
        why: str,
    ) -> None:
        """Answer in git's place, as git would."""
        lines = await unpacked.refuse([found], commands.updates)
        banded = "side-band-64k" in commands.capabilities
        content = refusal(lines, why, [update.ref for update in commands.updates], banded)
        headers = NEVER_KEPT | _result_of(GitService.RECEIVE)
        await exchange.outgoing.refuse(200, headers, content, exchange.incoming)

    async def _pass(
        self,
        exchange: AsgiExchange,
        visit: RepositoryAccess,
        service: GitService,
        answer: AsyncGenerator[bytes],
    ) -> None:
        """Give git's answer to the client as it comes."""
        headers = NEVER_KEPT | _result_of(service)
        try:
            await while_there(exchange.incoming, _repeat(answer, exchange.outgoing, headers))
        except GitTimedOut:
            raise
        except GitFailed as error:
            if error.status < 0 and not error.was_asked_oddly:
                raise
            _log.warning("request to '%s': %s", visit.repository.name, error)
            raise MalformedRequest("git cannot parse this request") from error

    async def _tell(self, error: Exception, exchange: AsgiExchange) -> None:
        if isinstance(error, ClientGone):
            raise error
        request_id = new_id(self._services.now())
        trouble = trouble_of(error, request_id)
        if exchange.outgoing.started:  # too late for a status: the answer ends in the middle
            _log.warning("a response of git ended early (%s): %s", request_id, trouble.message)
            return
        words = _lfs_words if f".git/{LFS}" in exchange.request.scope["path"] else _git_words
        headers, content = words(trouble)
        headers = {"Cache-Control": "no-store", "X-Request-Id": request_id, **headers}
        await exchange.outgoing.refuse(trouble.status, headers, content, exchange.incoming)


async def _repeat(
    answer: AsyncGenerator[bytes], outgoing: ResponseWriter, headers: Mapping[str, str]
) -> None:
    """git's answer; until its first byte a status can still tell of an error."""
    async with aclosing(answer) as chunks:
        async for chunk in chunks:
            if not outgoing.started:
                await outgoing.start(200, headers)
            await outgoing.send(chunk)
    if not outgoing.started:
        await outgoing.start(200, headers)
    await outgoing.end()


def _inflated(exchange: AsgiExchange, most_bytes: int) -> AsyncIterator[bytes]:
    body = exchange.incoming.chunks()
    encoding = exchange.request.headers.get("content-encoding", "identity").lower()
    if encoding in ("gzip", "x-gzip"):
        return gunzip(body, most_bytes)
    if encoding != "identity":
        raise UnsupportedMediaType(f"Content-Encoding is {encoding!r:.40}; 'gzip' is understood")
    return body


def _result_of(service: GitService) -> dict[str, str]:
    return {"Content-Type": f"application/x-{service}-result"}


def _git_words(trouble: ErrorResponse) -> tuple[dict[str, str], bytes]:
    """git shows plain text as lines of `remote:`."""
    headers = {**trouble.headers, "Content-Type": "text/plain; charset=utf-8"}
    if trouble.status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    return headers, f"{trouble.message}\n".encode()


def _lfs_words(trouble: ErrorResponse) -> tuple[dict[str, str], bytes]:
    headers = {**trouble.headers, "Content-Type": MEDIA_TYPE}
    if trouble.status == 401:
        headers |= {"WWW-Authenticate": CHALLENGE, "LFS-Authenticate": CHALLENGE}
    return headers, orjson.dumps(error_body(trouble.message))


def _check_version(request: Request) -> None:
    """git's answers have no length, which HTTP/1.0 has no way to say. Raises HTTPException."""
    if request.scope["http_version"] == "1.0":
        message = "git needs HTTP/1.1, and this request came with 1.0; a proxy before this server"
        raise HTTPException(505, f"{message} must keep it (nginx: proxy_http_version 1.1)")


def _check_type(request: Request, service: GitService) -> None:
    kind = f"application/x-{service}-request"
    if request.headers.get("content-type", "") != kind:
        raise UnsupportedMediaType(f"the Content-Type of this request must be {kind}")


def _too_long(visit: RepositoryAccess, service: GitService, incoming: RequestBody) -> str:
    """Why the body is refused before it is read, "" when it is not."""
    most = _most_bytes(visit, service)
    if incoming.length is None or incoming.length <= most:
        return ""
    return (
        f"the request has {incoming.length} bytes, of {most} that '{visit.repository.name}' takes; "
        "put large files into Git LFS (git lfs track), or push in smaller steps"
    )


def _most_bytes(visit: RepositoryAccess, service: GitService) -> int:
    if service is GitService.UPLOAD:
        return _COMMANDS_BYTES
    return visit.repository.settings.budgets.max_pack_bytes + _COMMANDS_BYTES
