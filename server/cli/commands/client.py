"""The control API as the command line talks to it: over the server's Unix socket, or a URL."""

import http.client
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from control.errors import PROBLEM_HEADER
from control.views import ErrorDocument, Page, to_json
from server import VERSION

T = TypeVar("T")

API = "/api/v1"

ANSWER_S = 35.0
"""For an answer to begin; the server itself gives what it asks elsewhere 30 s."""
NOTICE_S = 5.0
"""After which a person is told what is waited for."""
PREPARE_S = 300.0
"""For a large answer to begin, which is first made as a whole."""
STREAM_S = 60.0
"""For the next piece of an answer that comes bit by bit."""
_LONGEST_SOCKET_PATH = 107
_PIECE_BYTES = 2**20
_NOT_OURS = "something else than a control API; it is at the admin port, 8003 by default"


class ServerUnreachable(Exception):
    """Nothing answers there; says how to get an answer."""


class RequestRejected(Exception):
    """The server said no, in its own words. `code` is the envelope's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the API is: `url`, or else the socket. `token` may be "" over the socket."""

    socket_path: Path
    url: str = ""
    token: str = ""


class ApiClient:
    """One connection per request. Every method raises ServerUnreachable, Refusal."""

    def __init__(
        self, place: ServerAddress, answer_s: float = ANSWER_S, notice_s: float = NOTICE_S
    ) -> None:
        self._place = place
        self._answer_s = answer_s
        self._notice_s = notice_s

    def get(self, path: str, kind: type[T], /, **query: Any) -> T:
        """The answer, decoded into a `kind`."""
        return self.call("GET", path + _query(query), kind)

    def call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """The answer to a change; `body`: a Struct, or an object of what is given."""
        with self._open(method, path, body, headers) as response:
            return self._decoded(self._all_of(response), kind)

    def delete(self, path: str) -> None:
        with self._open("DELETE", path) as response:
            self._all_of(response)

    def get_with_etag(self, path: str, kind: type[T]) -> tuple[T, str]:
        """The decoded answer, and the ETag a change can be held against."""
        with self._open("GET", path) as response:
            return self._decoded(self._all_of(response), kind), response.headers["ETag"]

    @contextmanager
    def stream(self, path: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """The lines of an event stream, as they come."""
        headers = {"Accept": "text/event-stream"}
        with self._open("GET", path + _query(query), headers=headers) as response:
            yield self._body_pieces(response)

    def download(self, method: str, path: str) -> Iterator[bytes]:
        """The pieces of a large answer, as they come."""
        with self._open(method, path, answer_s=PREPARE_S) as response:
            while piece := self._read(response, _PIECE_BYTES):
                yield piece

    def items(
        self, path: str, kind: type[T], limit: int | None = None, /, **query: Any
    ) -> Iterator[T]:
        """Each item of a list, page by page, at most `limit`."""
        cursor, left = None, limit
        while True:
            page_size = 500 if left is None else min(500, left)
            page: Page[T] = self.get(path, Page[kind], **query, limit=page_size, cursor=cursor)  # type: ignore[valid-type]
            yield from page.items
            cursor = page.next
            left = None if left is None else left - len(page.items)
            if cursor is None or left == 0:
                return

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float | None = None,
    ) -> Iterator[HTTPResponse]:
        """The response, its body not yet read; what goes wrong in the block is the block's."""
        connection = _connection(self._place, answer_s or self._answer_s)
        try:
            yield self._response(connection, method, path, body, headers)
        finally:
            connection.close()

    def _response(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> HTTPResponse:
        answer_s = connection.timeout or self._answer_s
        try:
            with self._patient(answer_s):
                connection.request(
                    method,
                    _prefix(self._place.url) + API + path,
                    None if body is None else to_json(body),
                    self._headers(body is not None, headers),
                )
                response = connection.getresponse()
        except TimeoutError as error:
            connected = connection.sock is not None
            raise ServerUnreachable(_silent(self._place, answer_s, connected)) from error
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ServerUnreachable(
                f"a server listened at {_name(self._place)} and ended the connection without an "
                "answer: its control process was stopped or restarted; look at its log and what "
                "has become of the request, and try again"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachable(_no_answer(self._place, error)) from error
        if response.status >= 400:
            raise _refusal(response.status, self._read(response, 2**20))
        if connection.sock is not None:  # None where the answer ends with the connection
            connection.sock.settimeout(STREAM_S)
        if problem := response.headers.get(PROBLEM_HEADER):
            sys.stderr.write(f"modelyard: warning: {unquote(problem)}\n")
        return response

    @contextmanager
    def _patient(self, answer_s: float) -> Iterator[None]:
        """Tell the person after a while for what and how long this waits."""
        notice = threading.Timer(self._notice_s, self._tell_wait, (answer_s,))
        notice.daemon = True
        notice.start()
        try:
            yield
        finally:
            notice.cancel()

    def _tell_wait(self, answer_s: float) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(
                f"modelyard: {_name(self._place)} has not answered for {self._notice_s:g} s; "
                f"waiting for {answer_s:g} s in all\n"
            )

    def _body_pieces(self, response: HTTPResponse) -> Iterator[bytes]:
        with self._unbroken():
            yield from response

    def _all_of(self, response: HTTPResponse) -> bytes:
        with self._unbroken():
            return response.read()

    def _read(self, response: HTTPResponse, size: int) -> bytes:
        with self._unbroken():
            return response.read(size)

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        try:
            yield
        except http.client.IncompleteRead as error:
            raise ServerUnreachable(
                f"the answer of {_name(self._place)} broke off before its end; the server's log "
                "says why"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            where = _name(self._place)
            raise ServerUnreachable(
                f"the answer of {where} broke off: {error or 'too early'}"
            ) from error

    def _decoded(self, raw: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ServerUnreachable(
                f"what answers at {_name(self._place)} is {_NOT_OURS}"
            ) from None

    def _headers(self, has_body: bool, more: Mapping[str, str] | None) -> dict[str, str]:
        found = {"Accept": "application/json", "User-Agent": f"modelyard-cli/{VERSION}"}
        if has_body:
            found["Content-Type"] = "application/json"
        if self._place.token:
            found["Authorization"] = f"Bearer {self._place.token}"
        return found | dict(more or {})


def path_of(*parts: object) -> str:
    """`/users/ada` from "users" and "ada", whatever they hold."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _connection(place: ServerAddress, timeout_s: float) -> HTTPConnection:
    """Raises ServerUnreachable for a URL that cannot be one of ours."""
    if not place.url:
        return _UnixConnection(place.socket_path, timeout_s)
    parts = urlsplit(place.url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise ServerUnreachable(
            f"'{place.url}' is no URL to ask at; give --url http(s)://HOST:PORT"
        )
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return HTTPConnection(host, port, timeout=timeout_s)


def _prefix(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _query(query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _refusal(status: int, raw: bytes) -> RequestRejected:
    try:
        body = msgspec.json.decode(raw, type=ErrorDocument).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RequestRejected(status, "http", f"the answer is {status}, of {_NOT_OURS}")
    return RequestRejected(status, body.code, body.message)


def _name(place: ServerAddress) -> str:
    return place.url or str(place.socket_path)


def _silent(place: ServerAddress, answer_s: float, connected: bool) -> str:
    if not connected:
        return f"no connection to {_name(place)} within {answer_s:g} s; is the address right?"
    return (
        f"a server listens at {_name(place)} and has not responded within {answer_s:g} s: its "
        "control process is busy or stopped; its log may say more, and a change may have been made"
    )


def _no_answer(place: ServerAddress, error: Exception) -> str:
    if place.url:
        return f"no server answers at {place.url}: {error}"
    if len(str(place.socket_path)) > _LONGEST_SOCKET_PATH:
        return f"the path {place.socket_path} is too long for a Unix socket; use --url"
    if isinstance(error, PermissionError):
        return f"{place.socket_path} is another user's; run as that user, or use --url and a token"
    return (
        f"no server answers at {place.socket_path}; start one with `modelyard serve`, or say where "
        "it is with --state-dir or --url"
    )
