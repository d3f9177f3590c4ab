"""Chats rendered by their models' templates, in a process that may hang or die of them.

`backends.llm.chat.render` renders; here it is started when first needed, asked, and killed when a
template takes too long. A template that did so with a small chat is not tried again for a while.
"""

import asyncio
import logging
import sys
import time
from contextlib import suppress

from backends.host.output import logged
from backends.llm.chat.template import LENGTH, Chat, ChatTemplate, question
from repository.pipes import feed
from repository.sandbox.children import child_environment, start_line
from repository.sandbox.policy import Sandbox
from server.errors import NotReady
from server.rest.openai_errors import BadField

RENDER_S = 2.0
START_S = 30.0
"""A machine under load takes long to start a process, which is not the template's fault."""
PENANCE_S = 60.0
BLAMED_BYTES = 1 << 17
"""A chat this small is not what takes so long: the template is tried no more for PENANCE_S."""
MAX_QUESTION_BYTES = 1 << 26
MAX_ANSWER_BYTES = (1 << 26) + 1
"""As many as the characters can have that `backends.llm.chat.render` makes at most."""

_log = logging.getLogger(__name__)


class ChatRenderer:
    """One chat at a time; belongs to one event loop. `close` it."""

    def __init__(self, render_s: float = RENDER_S, sandbox: Sandbox | None = None) -> None:
        """`sandbox`: what the process may do; None for whatever this one may."""
        self._render_s = render_s
        self._sandbox = sandbox
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[bytes]] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._closed = False
        self._barred: dict[int, tuple[ChatTemplate, float]] = {}

    async def render(self, template: ChatTemplate, chat: Chat) -> str:
        """The chat as the model reads it. Raises BadField with what the template says."""
        self._refuse_barred(template)
        asked = question(template, chat)
        if len(asked) > MAX_QUESTION_BYTES:
            raise _failed(f"the messages are larger than {MAX_QUESTION_BYTES >> 20} MiB")
        asking = asyncio.ensure_future(self._in_turn(template, asked))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        answer = await asyncio.shield(asking)  # who gives up leaves the process to the others
        text = answer[1:].decode(errors="replace")
        if answer[:1] == b"+":
            return text
        raise _failed(f"the model's chat template refuses these messages: {text}")

    async def close(self) -> None:
        self._closed = True
        async with self._turn:
            await self._end()

    async def _in_turn(self, template: ChatTemplate, asked: bytes) -> bytes:
        async with self._turn:
            self._refuse_barred(template)
            if self._process is not None:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    return await self._ask(template, asked)
            # None was there, or it has died since the last chat, or of this one.
            try:
                return await self._ask(template, asked)
            except (asyncio.IncompleteReadError, ConnectionError):
                what = "the model's chat template ended the process that rendered it"
                raise _failed(what) from None

    async def _ask(self, template: ChatTemplate, asked: bytes) -> bytes:
        """Raises IncompleteReadError or ConnectionError if the process ends."""
        process = await self._running()
        try:
            async with asyncio.timeout(self._render_s):
                return await _exchange(process, asked)
        except TimeoutError:
            await self._end()
            _log.warning("a chat template took longer than %g s and was killed", self._render_s)
            if len(asked) <= BLAMED_BYTES:
                self._barred[id(template)] = (template, time.monotonic() + PENANCE_S)
            what = f"the model's chat template took longer than {self._render_s:g} s"
            raise _failed(what) from None
        except BaseException:
            await self._end()  # an answer nobody reads would be the next one's
            raise

    async def _running(self) -> asyncio.subprocess.Process:
        """The process, started if there is none. Raises NotReady."""
        if self._closed:
            raise NotReady("the server is stopping")
        if self._process is not None and self._process.returncode is None:
            return self._process
        try:
            async with asyncio.timeout(START_S):
                self._process = await _start(self._sandbox)
                await _exchange(self._process, b"")
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            await self._end()
            why = str(error) or type(error).__name__
            raise NotReady(f"the process that renders chats does not start: {why}") from error
        except BaseException:
            await self._end()
            raise
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _refuse_barred(self, template: ChatTemplate) -> None:
        _, until_s = self._barred.get(id(template), (None, 0.0))
        if until_s <= time.monotonic():
            self._barred.pop(id(template), None)
            return
        raise _failed(
            f"the model's chat template took longer than {self._render_s:g} s a moment ago; it is "
            f"tried again after {PENANCE_S:g} s"
        )


async def _start(sandbox: Sandbox | None) -> asyncio.subprocess.Process:
    with logged("renderer") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the current folder may be a model repository: import nothing from it
            "-c",
            start_line("backends.llm.chat.render"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=child_environment(sandbox),
            start_new_session=True,  # Ctrl-C is the server's to answer
        )


async def _exchange(process: asyncio.subprocess.Process, asked: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    await feed(process.stdin, LENGTH.pack(len(asked)) + asked)
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    if length > MAX_ANSWER_BYTES:
        raise ConnectionError(f"an answer of {length} bytes")
    return await process.stdout.readexactly(length)


def _failed(message: str) -> BadField:
    return BadField(message, "messages", "chat_template_failed")
