"""The engine process's loop: take in what came, do a step of the work, and so on until the end.

Only this loop's thread touches the work, which is generating, or embedding
(`schedulers.llm.engine.embedding_work`); a `Duplex` reads and writes beside it.
"""

import os
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from backends.llm.tokens.tokeniser import Tokeniser
from backends.process.duplex import Duplex
from repository.process.channel import Channel, ChannelMessage
from schedulers.llm.engine.engine import Engine
from schedulers.llm.engine.tokeniser_thread import TokeniserThread
from schedulers.llm.engine_messages import (
    Cancel,
    Close,
    Decode,
    Embed,
    Encode,
    EngineStats,
    Grow,
    Message,
    RequestRefused,
    ResizeReply,
    Shrink,
    StepReport,
    Submit,
    decode,
)
from schedulers.llm.errors import PromptTooLong, TooMuchWaiting
from schedulers.llm.generation import GenerateRequest, GenerationOutput

Inbox = SimpleQueue[Message | None]
"""None only wakes the loop."""
COUNTS_EVERY_S = 0.25
COMPILING_LOOK_S = 0.05
"""How often the deadlines of requests are looked at that wait for their grammars."""


class EngineWork(Protocol):
    """What a process does: it generates, or it embeds."""

    @property
    def busy(self) -> bool:
        """Whether `step` has something to compute."""

    @property
    def patience_s(self) -> float | None:
        """How long to wait for messages while not busy before `step` is called all the same."""

    def handle(self, message: Message) -> None:
        """Handle a message of the gateway."""

    def step(self) -> None:
        """Compute a little and report it."""


class EngineLoop:
    """One process's conversation with its gateway."""

    def __init__(self, channel: Channel, inbox: Inbox) -> None:
        self._inbox = inbox
        self._duplex = Duplex(channel, "engine", self._receive, self._abandoned)
        self._reading: TokeniserThread | None = None
        self._closing = False

    def send(self, message: Message) -> None:
        self._duplex.send(message)

    def read_with(self, tokeniser: Tokeniser) -> None:
        """Read texts with this one, from `run` on."""
        self._reading = TokeniserThread(tokeniser, self.send)

    def run(self, work: EngineWork) -> None:
        """Until the gateway sends `Close`."""
        self._duplex.start()
        while not self._closing:
            self._take_in(work)
            if work.busy or work.patience_s is not None:
                work.step()
        self._duplex.flush()

    # on the reading thread

    def _receive(self, received: ChannelMessage) -> None:
        message = decode(received.payload)
        if isinstance(message, Encode | Decode) and self._reading is not None:
            self._reading.take(message)
        else:
            self._inbox.put(message)

    def _abandoned(self) -> None:
        if not self._closing:
            os._exit(1)  # the gateway has disconnected: nobody is left to answer

    # on the loop's

    def _take_in(self, work: EngineWork) -> None:
        """Everything that has come; waits where there is nothing else to do."""
        waits = not work.busy
        try:
            while not self._closing:
                message = (
                    self._inbox.get(timeout=work.patience_s) if waits else self._inbox.get_nowait()
                )
                waits = False
                if isinstance(message, Close):
                    self._closing = True
                elif message is not None:
                    work.handle(message)
        except Empty:
            return


class GenerationWork:
    """Generating: requests into one engine, its outputs out to the gateway."""

    def __init__(self, engine: Engine, block_bytes: int, send: Callable[[Message], None]) -> None:
        self._engine = engine
        self._block_bytes = block_bytes
        self._send = send
        self._counted_s = 0.0

    @property
    def busy(self) -> bool:
        return self._engine.busy

    @property
    def patience_s(self) -> float | None:
        return COMPILING_LOOK_S if self._engine.compiling else None

    def handle(self, message: Message) -> None:
        match message:
            case Submit(requests):
                for request in requests:
                    self._submit(request)
            case Cancel(ids):
                for id in ids:
                    self._engine.cancel(id)
                if not self._engine.busy:
                    self._report([], time.monotonic_ns())
            case Shrink(bytes):
                self._resized(self._engine.shrink(-(-bytes // self._block_bytes)))
            case Grow(bytes):
                self._resized(self._engine.grow(bytes // self._block_bytes))
            case Embed(id):
                self._send(RequestRefused(id, "invalid", "this model gives no embeddings"))

    def step(self) -> None:
        began_ns = time.monotonic_ns()
        outputs = self._engine.step(began_ns / 1e9)
        self._engine.took((time.monotonic_ns() - began_ns) / 1e9)
        self._report(outputs, began_ns)

    def _submit(self, request: GenerateRequest) -> None:
        id = request.id
        try:
            self._engine.submit(request, time.monotonic())
        except PromptTooLong as error:
            self._send(RequestRefused(id, "long", str(error)))
        except TooMuchWaiting as error:
            self._send(RequestRefused(id, "busy", str(error)))
        except (ValueError, TypeError) as error:
            self._send(RequestRefused(id, "invalid", str(error)))

    def _resized(self, bytes: int) -> None:
        self._send(ResizeReply(bytes))
        self._counted_s = 0.0
        self._report([], time.monotonic_ns())

    def _report(self, outputs: list[GenerationOutput], began_ns: int) -> None:
        started = self._engine.take_started()
        counts = None
        if began_ns / 1e9 - self._counted_s >= COUNTS_EVERY_S or not self._engine.busy:
            self._counted_s = began_ns / 1e9
            counts = self._figures()
        self._send(StepReport(began_ns, started, outputs, counts))

    def _figures(self) -> EngineStats:
        counts = self._engine.counts()
        blocks = counts.blocks
        return EngineStats(
            self._engine.steps, counts.prompt_tokens, counts.generated_tokens,
            counts.prefix_hit_tokens, counts.preemptions, counts.running, counts.waiting,
            counts.waiting_tokens, blocks.in_use, blocks.cached, blocks.empty,
        )  # fmt: skip
