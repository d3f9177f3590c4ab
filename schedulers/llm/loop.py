"""The engine process's loop: take in what came, do a step of the work, and so on until the end.

Only this loop's thread touches the work; a `Duplex` reads and writes beside it.
"""

import os
from queue import Empty, SimpleQueue
from typing import Protocol

from backends.llm.tokens.tokeniser import Tokeniser
from backends.process.duplex import Duplex
from repository.process.channel import Channel, ChannelMessage
from schedulers.llm.engine_messages import Close, Decode, Encode, Message, decode, encode
from schedulers.llm.tokeniser_thread import TokeniserThread

Inbox = SimpleQueue[Message | None]
"""None only wakes the loop."""


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
        self._duplex.post(encode(message))

    def read_with(self, tokeniser: Tokeniser) -> None:
        """Read texts with this one, from `run` on."""
        self._reading = TokeniserThread(tokeniser, self.send)

    def run(self, work: EngineWork) -> None:
        """Until the gateway says `Close`."""
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
