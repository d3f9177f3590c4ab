"""The server's end of the hooks: a Unix socket on which each push asks whether it may pass."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from repository.git.errors import BadBody, BadSocketPath
from repository.git.hooks.hook import HookRequest, decode
from repository.git.hooks.hook_client import ANSWER_SECS, MOST_REQUEST_BYTES
from repository.git.text import plain_text
from repository.sandbox.peer import is_confined

Say = Callable[[str], None]
Answer = Callable[[HookRequest, Say], Awaitable[bool]]
"""Decides on one push; may say lines to the pusher meanwhile. True lets it pass.

It is cancelled when the pusher goes away or the deadline passes. For post-receive, what it
returns makes no difference.
"""

logger = logging.getLogger(__name__)

_MOST_PATH_BYTES = 107
_MOST_SAID_BYTES = 256 * 1024
_MOST_HOOKS = 64
_REQUEST_SECS = 10.0
_PEER = struct.Struct("3i")


class HookListener:
    """Answers hooks from `start` to `close`, each on a task of its own, all on one loop."""

    def __init__(self, path: Path, answer: Answer, deadline_s: float = 300.0) -> None:
        """`path`: where the socket will lie. Raises `BadSocketPath` when it is too long."""
        length = len(os.fsencode(os.path.abspath(path)))
        if length > _MOST_PATH_BYTES:
            most = f"{length} bytes long, of {_MOST_PATH_BYTES} that Unix sockets allow"
            raise BadSocketPath(
                f"the socket path '{path}' is {most}; choose a shorter state folder"
            )
        if deadline_s >= ANSWER_SECS:
            raise ValueError(f"deadline_s must be below {ANSWER_SECS:g}, got {deadline_s:g}")
        self.path = Path(os.path.abspath(path))
        self._answer = answer
        self._deadline_s = deadline_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, for our own user only; a socket that a crash has left is replaced."""
        self._server = await asyncio.start_unix_server(
            self._accept, sock=_bound(self.path), limit=MOST_REQUEST_BYTES
        )

    async def close(self) -> None:
        """Stop listening; pushes that still wait for an answer are refused."""
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self.path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nobody is left to be told when the hook has gone or reads no more.
        with contextlib.suppress(ConnectionError, TimeoutError):
            try:
                if _is_ours(writer):
                    await self._converse(reader, _ReplyWriter(writer))
            finally:
                writer.close()
            await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, mouth: "_ReplyWriter") -> None:
        if len(self._tasks) > _MOST_HOOKS:
            mouth.say(f"{_MOST_HOOKS} pushes are being checked; try again in a moment")
            await mouth.end(passes=False)
            return
        try:
            async with asyncio.timeout(_REQUEST_SECS):
                request = decode(await reader.readuntil(b"\n"))
        except (BadBody, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
            mouth.say(f"the hook's request cannot be read: {error}")
            await mouth.end(passes=False)
            return
        answering = asyncio.create_task(self._decide(request, mouth))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await mouth.end(passes=answering.result())
        finally:
            answering.cancel()
            gone.cancel()
            await asyncio.wait((answering, gone))

    async def _decide(self, request: HookRequest, mouth: "_ReplyWriter") -> bool:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._answer(request, mouth.say)
        except TimeoutError:
            mouth.say(f"no decision within {self._deadline_s:g} s; try again")
        except Exception:  # the pusher needs an answer, whatever went wrong
            logger.exception("cannot decide on push %s (%s)", request.key, request.hook)
            mouth.say("the server failed to check this push; see its log")
        return False


class _ReplyWriter:
    """What is sent to one hook: some lines, then an exit status. Bounded: it may read slowly."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._left_bytes = _MOST_SAID_BYTES

    def say(self, text: str) -> None:
        """Show the pusher some text, now; control characters are left out, and what is too much."""
        for line in text.split("\n"):
            if self._left_bytes <= 0:
                return
            indent = line[: len(line) - len(line.lstrip(" "))][:40]
            plain = indent + plain_text(line, 2000)
            self._left_bytes -= len(plain) + 16
            self._send({"say": plain if self._left_bytes > 0 else "… and more, left out here"})

    async def end(self, *, passes: bool) -> None:
        self._send({"exit": 0 if passes else 1})
        async with asyncio.timeout(_REQUEST_SECS):
            await self._writer.drain()

    def _send(self, words: dict[str, str | int]) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(words).encode() + b"\n")


def _bound(path: Path) -> socket.socket:
    """A socket that nobody can connect to yet, and none but our user later."""
    if path.exists() and not path.is_socket():
        raise BadSocketPath(f"'{path}' is there and is no socket; move it away")
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    peer: socket.socket = writer.get_extra_info("socket")
    sent = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(sent)
    return bool(uid == os.geteuid()) and not is_confined(peer)
