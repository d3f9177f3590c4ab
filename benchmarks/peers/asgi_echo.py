"""The bare limit of REST in Python: raw ASGI under uvicorn that parses, echoes and serialises."""

import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.peers.seam import Peer
from benchmarks.process import free_addresses, is_listening, port_of, running

NAME = "bare ASGI echo"
OUTPUT = "OUTPUT0"

Message = MutableMapping[str, Any]


@contextmanager
def started(cache: Path) -> Iterator[Peer]:
    """The echo under uvicorn with uvloop and httptools; raises `PeerFailed`."""
    (address,) = free_addresses(1)
    command = [sys.executable, "-m", "uvicorn", "--loop=uvloop", "--http=httptools"]
    command += ["--log-level=error", "--no-access-log", f"--port={port_of(address)}"]
    command += ["benchmarks.peers.asgi_echo:echo"]
    log = cache / "logs" / "asgi_echo.log"
    with running(NAME, command, log, lambda: is_listening(address)) as process:
        yield Peer(NAME, process, address, "")


async def echo(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Answer a v2 inference with its own first input; nothing is checked."""
    if scope["type"] != "http":
        return
    body = orjson.dumps(_answer(orjson.loads(await _read(receive))))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_name": "identity",
        "model_version": "1",
        "outputs": [{**request["inputs"][0], "name": OUTPUT}],
    }


async def _read(receive: Callable[[], Awaitable[Message]]) -> bytes:
    message = await receive()
    if not message["more_body"]:
        return bytes(message["body"])
    parts = [message["body"]]
    while message["more_body"]:
        message = await receive()
        parts.append(message["body"])
    return b"".join(parts)
