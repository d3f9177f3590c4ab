"""Plain HTTP against a test server: headers both ways, and answers read off a raw socket."""

import http.client
import json
from typing import Any, NamedTuple

from support.server import Server


class Answer(NamedTuple):
    """Status, headers (names in lower case) and body of one response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


def ask(server: Server, verb: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    """One request on a connection of its own; `accept_encoding="gzip"` sends Accept-Encoding."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.putrequest(verb, path, skip_host="host" in sent, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


def infer_body(count: int = 2, rows: int = 1, **parameters: Any) -> bytes:
    """A JSON infer request for an identity model: `rows` rows of `count` numbers."""
    entry = {
        "name": "INPUT0",
        "datatype": "FP32",
        "shape": [rows, count],
        "data": [1.5] * (rows * count),
    }
    return json.dumps({"inputs": [entry], "parameters": parameters}).encode()


INFER = "/v2/models/echo/infer"
