"""The inference front end as the command line calls it: JSON over REST."""

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from server.cli.commands.client import ServerUnreachable
from server.cli.commands.command import CommandFailed
from server.settings.sources import read_settings

DEADLINE_S = 300.0
_NO_ID = "[request id: <id_unknown>] "
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class RequestFailed(CommandFailed):
    """The server refused, in its own words."""


def default_url() -> str:
    """Where a server started here would listen. Raises SettingsError."""
    settings = read_settings({}, os.environ, Path.cwd())
    host = _ANYWHERE.get(settings.http_address, settings.http_address)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.http_port}"


def call(url: str, path: str, body: Any = None, token: str = "") -> Any:
    """The decoded answer; a GET without a body. Raises ServerUnreachable, RequestFailed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandFailed(f"'{url}' is no URL; give --rest http(s)://HOST:PORT")
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = _connection(parts.scheme, parts.hostname, parts.port)
    try:
        content = None if body is None else json.dumps(body).encode()
        verb = "GET" if content is None else "POST"
        connection.request(verb, parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(
            f"no server answers at {url} ({error}); start one with `modelyard serve`, or say "
            "where its REST port is with --rest http://HOST:PORT"
        ) from None
    finally:
        connection.close()
    return _decoded(url, response.status, raw, bool(token))


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=DEADLINE_S, context=context)
    return http.client.HTTPConnection(host, port, timeout=DEADLINE_S)


def _decoded(url: str, status: int, raw: bytes, has_token: bool) -> Any:
    try:
        answer = json.loads(raw or b"{}")
    except ValueError:
        answer = None
    if status < 400 and isinstance(answer, dict):
        return answer
    reason = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(reason, str):
        raise RequestFailed(
            f"what answers at {url} is no inference server (status {status}); its REST port is "
            "8000 unless --http-port says otherwise: --rest http://HOST:PORT"
        )
    raise RequestFailed(reason.removeprefix(_NO_ID).rstrip(".") + _hint(status, reason, has_token))


def _hint(status: int, reason: str, has_token: bool) -> str:
    """What to do, where the server's words are those of Triton and do not say so."""
    if status == 401 and not has_token:
        return " (--token-file FILE, or the variable MODELYARD_TOKEN)"
    if status == 404:
        return "; `modelyard status` lists the models"
    if status == 400 or reason.startswith("Unable to parse"):
        return "; `modelyard infer MODEL` without -d shows what it takes"
    return ""
