"""The control API as the command line talks to it: over the server's Unix socket, or a URL."""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from server import VERSION

API = "/api/v1"
TIMEOUT_S = 60.0
_LONGEST_SOCKET_PATH = 107
_PIECE_BYTES = 2**20
_NOT_OURS = "something else than a control API; it is at the admin port, 8003 if not told otherwise"


class NoAnswer(Exception):
    """Nothing answers there; says how to get an answer."""


class Refusal(Exception):
    """The server said no, in its own words. `code` is the envelope's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API is: `url`, or else the socket. `token` may be "" over the socket."""

    socket_path: Path
    url: str = ""
    token: str = ""


class Api:
    """One connection per request. Every method raises NoAnswer, Refusal."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path + _query(query))

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The decoded answer, None for an empty one."""
        with self._open(method, path, body, headers) as response:
            raw = self._all_of(response)
        return self._decoded(raw) if raw else None

    def get_with_etag(self, path: str) -> tuple[Any, str]:
        """The decoded answer, and the ETag a change can be held against."""
        with self._open("GET", path) as response:
            return self._decoded(self._all_of(response)), response.headers["ETag"]

    @contextmanager
    def stream(self, path: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """The lines of an event stream, as they come."""
        headers = {"Accept": "text/event-stream"}
        with self._open("GET", path + _query(query), headers=headers) as response:
            yield self._told(response)

    def download(self, method: str, path: str) -> Iterator[bytes]:
        """The pieces of a large answer, as they come."""
        with self._open(method, path) as response:
            while piece := self._read(response, _PIECE_BYTES):
                yield piece

    def items(self, path: str, limit: int | None = None, **query: Any) -> Iterator[Any]:
        """Each item of a list, page by page, at most `limit`."""
        cursor, left = None, limit
        while True:
            wanted = 500 if left is None else min(500, left)
            page = self.get(path, **query, limit=wanted, cursor=cursor)
            yield from page["items"]
            cursor = page["next"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                return

    @contextmanager
    def _open(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """The response, its body not yet read; what goes wrong in the block is the block's."""
        connection = _connection(self._place)
        try:
            yield self._asked(connection, method, path, body, headers)
        finally:
            connection.close()

    def _asked(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> HTTPResponse:
        try:
            connection.request(
                method,
                _prefix(self._place.url) + API + path,
                None if body is None else json.dumps(body).encode(),
                self._headers(body is not None, headers),
            )
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(_no_answer(self._place, error)) from error
        if response.status >= 400:
            raise _refusal(response.status, self._read(response, 2**20))
        return response

    def _told(self, response: HTTPResponse) -> Iterator[bytes]:
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
        except (OSError, http.client.HTTPException) as error:
            where = _name(self._place)
            raise NoAnswer(f"the answer of {where} broke off: {error or 'too early'}") from error

    def _decoded(self, raw: bytes) -> Any:
        try:
            return json.loads(raw)
        except ValueError:
            raise NoAnswer(f"what answers at {_name(self._place)} is {_NOT_OURS}") from None

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
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _connection(place: Place) -> HTTPConnection:
    """Raises NoAnswer for a URL that cannot be one of ours."""
    if not place.url:
        return _UnixConnection(place.socket_path)
    parts = urlsplit(place.url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise NoAnswer(f"'{place.url}' is no URL to ask at; give --url http(s)://HOST:PORT")
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    return HTTPConnection(host, port, timeout=TIMEOUT_S)


def _prefix(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _query(query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _refusal(status: int, raw: bytes) -> Refusal:
    try:
        told = json.loads(raw)["error"]
        return Refusal(status, told["code"], told["message"])
    except (ValueError, KeyError, TypeError):
        return Refusal(status, "http", f"the answer is {status}, of {_NOT_OURS}")


def _name(place: Place) -> str:
    return place.url or str(place.socket_path)


def _no_answer(place: Place, error: Exception) -> str:
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
