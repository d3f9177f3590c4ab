"""A child process and an event loop that send each other messages, in the frames of `Channel`."""

import asyncio
import signal
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from repository.process.channel import HEADER_BYTES, header
from repository.process.child import ChildProcess, ChildProgram
from repository.process.pipes import feed
from repository.process.selector_loop import watch

_HANG_UP_SECS = 1.0


class MessageChild:
    """One child process, on one event loop. `stop` it at the end.

    Its `main` is given the descriptor of a `Channel` first.
    """

    def __init__(
        self,
        process: ChildProcess,
        gone: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Use `start`."""
        self._process = process
        self._gone = gone
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, program: ChildProgram, descriptors: Sequence[int] = ()) -> "MessageChild":
        """Raises OSError when there is no room for another process."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        def when_ended() -> None:
            with suppress(RuntimeError):  # the loop has ended before the child
                loop.call_soon_threadsafe(gone.set)

        process = ChildProcess(program, when_ended)
        ours, theirs = socket.socketpair()
        try:
            starting = watch().submit(partial(_start, process, theirs, descriptors))
            try:
                await asyncio.shield(asyncio.wrap_future(starting))
            except asyncio.CancelledError:
                starting.add_done_callback(partial(_kill_started, process))
                raise
            ours.setblocking(False)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return cls(process, gone, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, even where the loop does not yet know of its end."""
        return self._process.state not in ("", "Z", "X")

    @property
    def state(self) -> str:
        """As `repository.process.state.process_state` has it."""
        return self._process.state

    @property
    def status(self) -> int:
        """Of its exit; negative: the signal that ended it."""
        return self._process.status

    async def send(self, payload: bytes) -> None:
        """Raises ConnectionError when it reads no more."""
        await feed(self._writer, header(payload) + payload)

    async def receive(self, most_bytes: int) -> bytes:
        """The next message. Raises EOFError (IncompleteReadError) when it has ended or hung up,
        ConnectionError when its message is larger than `most_bytes`; it is killed then."""
        length = int.from_bytes(await self._reader.readexactly(HEADER_BYTES), "little")
        if length > most_bytes:
            self.kill(f"sent a message of {length} bytes and was killed")
            raise ConnectionError(f"a message of {length} bytes")
        return await self._reader.readexactly(length)

    async def ask(self, payload: bytes, most_bytes: int) -> bytes:
        """One message there, and one back; raises as `send` and `receive`."""
        await self.send(payload)
        return await self.receive(most_bytes)

    def kill(self, verdict: str = "") -> None:
        """As `ChildProcess.kill`."""
        self._process.kill(verdict)

    async def gone(self) -> str:
        """Wait for its end; how it ended: "exited with status 3"."""
        await self._gone.wait()
        return self._process.outcome

    async def outcome(self) -> str:
        """The same of one that hung up; it is killed if it has not ended a second later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECS):
                return await self.gone()
        self.kill("closed its connection and was killed")
        return await self.gone()

    async def stop(self, grace_secs: float, *, terminate: bool = False) -> bool:
        """Hang up, or send SIGTERM, upon which it ends by itself; and kill it when it has not after
        `grace_secs`. Whether it ended by itself."""
        self._writer.close()
        if terminate:
            self._process.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_secs):
                await self._gone.wait()
        except TimeoutError:
            self.kill()
            await self._gone.wait()
            return False
        except BaseException:
            self.kill()
            raise
        return True


def _kill_started(process: ChildProcess, starting: "Future[None]") -> None:
    """Nobody waits for it any more."""
    if starting.exception() is None:
        process.kill()


def _start(process: ChildProcess, channel: socket.socket, descriptors: Sequence[int]) -> None:
    with channel:
        process.start((channel.fileno(), *descriptors))
