"""Calls of this server's own REST listener, for people who try a model in the console."""

import asyncio
import http.client
import time
from collections.abc import AsyncIterator, Mapping

from anyio import CapacityLimiter, to_thread

from admin_ui.services import ControlApiError, GatewayResponse
from server.settings.listeners import UNIX
from server.settings.table import Settings

AT_ONCE, DEADLINE_S, PATIENCE_S = 4, 30.0, 5.0
LARGEST_ANSWER_BYTES = 4 * 2**20
STREAMS, LONGEST_STREAM_S, PIECE_BYTES = 8, 300.0, 65536

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class HttpGatewayClient:
    """`admin_ui.services.GatewayClient` over HTTP; `problem` says why there is no such way, "" if
    there is one."""

    def __init__(self, settings: Settings) -> None:
        self.problem = _problem(settings)
        self.wants_token = settings.inference_auth == "token"
        self._host = _ANYWHERE.get(settings.http_address, settings.http_address)
        self._port = settings.http_port
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{shown}:{self._port}"
        self._limiter = CapacityLimiter(AT_ONCE)
        self._streams = 0

    async def ask(
        self, verb: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> GatewayResponse:
        """Raises ControlApiError when the listener cannot be reached, is slow or says too much."""
        if self.problem:
            raise ControlApiError(503, "unavailable", self.problem)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._limiter.acquire_on_behalf_of(mark := object())
        except TimeoutError:
            raise ControlApiError(
                503, "busy", "too many models are being tried; try again"
            ) from None
        try:
            return await to_thread.run_sync(self._exchange, verb, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            wrong = f"the REST listener at {self.url} gave no response: "
            f"{error or type(error).__name__}"
            raise ControlApiError(503, "unavailable", wrong) from error
        finally:
            self._limiter.release_on_behalf_of(mark)

    async def stream(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, AsyncIterator[bytes]]:
        """The status, and the pieces as they come. Raises ControlApiError as `ask` does."""
        if self.problem:
            raise ControlApiError(503, "unavailable", self.problem)
        if self._streams >= STREAMS:
            raise ControlApiError(503, "busy", "too many chats with models; try again")
        connection = http.client.HTTPConnection(self._host, self._port, timeout=DEADLINE_S)
        try:
            answer = await to_thread.run_sync(_posted, connection, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            wrong = f"the REST listener at {self.url} gave no response: "
            f"{error or type(error).__name__}"
            raise ControlApiError(503, "unavailable", wrong) from error
        return answer.status, self._pieces(connection, answer)

    async def _pieces(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> AsyncIterator[bytes]:
        """Until the end, the deadline of a piece or of all, or until nobody reads on."""
        self._streams += 1
        try:
            async with asyncio.timeout(LONGEST_STREAM_S):
                while piece := await to_thread.run_sync(
                    answer.read1, PIECE_BYTES, abandon_on_cancel=True
                ):
                    yield piece
        except (OSError, http.client.HTTPException):
            return  # the page sees that the answer has no end
        finally:
            self._streams -= 1
            connection.close()

    def _exchange(
        self, verb: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> GatewayResponse:
        began = time.monotonic()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=DEADLINE_S)
        try:
            connection.request(verb, path, body or None, dict(headers))
            answer = connection.getresponse()
            found = bytearray()
            while len(found) <= LARGEST_ANSWER_BYTES and (piece := answer.read1(PIECE_BYTES)):
                found += piece
                if time.monotonic() - began > DEADLINE_S:
                    raise TimeoutError(f"it did not end within {DEADLINE_S:g} s")
            answer_headers = {name.lower(): value for name, value in answer.getheaders()}
            took_s = time.monotonic() - began
        finally:
            connection.close()
        if len(found) > LARGEST_ANSWER_BYTES:
            wrong = f"the answer has more than {LARGEST_ANSWER_BYTES >> 20} MiB; use a client"
            raise ControlApiError(502, "too_large", wrong)
        return GatewayResponse(answer.status, answer_headers, bytes(found), took_s)


def _posted(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    connection.request("POST", path, body, dict(headers))
    return connection.getresponse()


def _problem(settings: Settings) -> str:
    if not settings.allow_http:
        return "models cannot be tried here: the REST listener is closed (--allow-http=false)"
    if settings.http_address.startswith(UNIX):
        return "models cannot be tried here: the REST listener is a Unix socket"
    if settings.http_use_ssl or settings.http_use_ssl_mutual:
        return "models cannot be tried here: the REST listener speaks HTTPS; use a client"
    return ""
