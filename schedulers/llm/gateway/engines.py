"""The engines of one model: who gets a request, what has died or stuck, what was counted.

Belongs to `schedulers.llm.gateway.language_scheduler`, on the loop's thread.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from backends.errors import InstanceDied
from backends.llm.chat.control_text import ControlText
from backends.llm.tokens.token_table import TokenTable
from backends.seam import Instance
from schedulers.counters import TokenCounters
from schedulers.errors import ShutDown
from schedulers.llm.engine_messages import (
    Cancel,
    Decode,
    Encode,
    EngineStats,
    Grow,
    Message,
    ResizeReply,
    Shrink,
    TokeniserReply,
)
from schedulers.llm.gateway.instance import EngineInstance
from schedulers.llm.gateway.llm_reply import LLMReply

LOOK_S = 0.5
"""How often engines are looked at while they have work."""
REVIVAL_PATIENCE_S = 120.0
"""How long tickets without an engine wait for one to come back, and texts to be read."""
_SHUT_DOWN = "the server unloaded this model before the text could be read"

_COUNTED = ("prompt_tokens", "generated_tokens", "prefix_hit_tokens", "preemptions")
_GAUGES = (
    "running", "waiting", "waiting_tokens", "blocks_in_use", "blocks_cached", "blocks_empty",
)  # fmt: skip
_NOTHING = EngineStats(*[0] * len(EngineStats.__struct_fields__))


@dataclass(slots=True, eq=False)
class TokeniserRequest:
    """A text to be read, and what an engine makes of it. `again`: an engine has died with it."""

    message: Encode | Decode
    answer: "asyncio.Future[TokeniserReply]"
    again: bool = False


@dataclass(slots=True, eq=False)
class EngineHandle:
    """One engine. `tickets`: those with an answer in it, by the engine's name for that answer.
    `texts`: those it is reading, by number.

    `deaths`: of its process, as far as they were dealt with. `last_message_ns`: when it last sent
    anything, or was given work after it had none. `leaving`: it gets no more. `given_back`: bytes
    of its cache; after a restart it `owes` them again. `resized`: who waits for its answer to that.
    """

    instance: EngineInstance
    deaths: int
    tickets: dict[str, LLMReply] = field(default_factory=dict)
    texts: dict[int, TokeniserRequest] = field(default_factory=dict)
    last_message_ns: int = 0
    figures: EngineStats = _NOTHING
    leaving: bool = False
    given_back: int = 0
    owes: bool = False
    resized: "asyncio.Future[int] | None" = None

    @property
    def ready(self) -> bool:
        return self.instance.ready and self.deaths == self.instance.deaths and not self.leaving

    @property
    def idle(self) -> bool:
        return not self.tickets and not self.texts


class Engines:
    """`on_message(handle, message)`: what an engine sends, on the loop. `on_death(ticket)`: its
    engine died. `on_ready()`: an engine is there for those that wait for one.
    """

    def __init__(
        self,
        counters: TokenCounters,
        stall_s: int,
        on_message: Callable[[EngineHandle, Message], None],
        on_death: Callable[[LLMReply], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._counters = counters
        self._stall_s = stall_s
        self._on_message = on_message
        self._on_death = on_death
        self._on_ready = on_ready
        self._handles: list[EngineHandle] = []
        self._waiting_texts: dict[int, TokeniserRequest] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False
        self._left = asyncio.Event()
        self.steps = 0

    @property
    def ready(self) -> int:
        """How many can be given work."""
        return sum(handle.ready for handle in self._handles)

    @property
    def table(self) -> TokenTable:
        """What tokens add to a text."""
        opened = self._handles[0].instance.opened
        return TokenTable(opened.token_ends, opened.token_letters)

    @property
    def control_text(self) -> ControlText:
        """Texts of the vocabulary's control tokens."""
        opened = self._handles[0].instance.opened
        return ControlText(opened.specials, opened.markers)

    def submit(self, ticket: LLMReply, names: Sequence[str], message: Message) -> bool:
        """Say `message`, which asks for answers by these names, to the least busy engine; False
        where there is none."""
        ready = [handle for handle in self._handles if handle.ready]
        if not ready:
            return False
        handle = min(ready, key=lambda one: len(one.tickets))
        if not handle.tickets:
            handle.last_message_ns = time.monotonic_ns()
        handle.instance.post(message)  # first: what cannot be sent must not be waited for
        handle.tickets.update(dict.fromkeys(names, ticket))
        if self._watch is None:
            self._watch = self._loop.call_later(LOOK_S, self._look)
        return True

    def take_back(self, names: Iterable[str]) -> None:
        """Nobody waits for these any more; their blocks are free before the next step."""
        wanted = tuple(names)
        for handle in self._handles:
            gone = tuple(name for name in wanted if handle.tickets.pop(name, None) is not None)
            if gone:
                handle.instance.post(Cancel(gone))
        self._retire_idle()

    async def read(self, message: Encode | Decode) -> TokeniserReply:
        """What an engine makes of a text, which it does beside its steps; asked once more if it
        dies of it. Raises InstanceDied when none answers in time, and ShutDown."""
        if self._closed:
            raise ShutDown(_SHUT_DOWN)
        request = TokeniserRequest(message, self._loop.create_future())
        self._give_text(request)
        try:
            async with asyncio.timeout(REVIVAL_PATIENCE_S):
                return await request.answer
        except TimeoutError:
            patience = f"{REVIVAL_PATIENCE_S:g} s"
            raise InstanceDied(f"no engine of the model read the text within {patience}") from None
        finally:
            self._forget_text(message.id)

    def _give_text(self, request: TokeniserRequest) -> None:
        ready = [handle for handle in self._handles if handle.ready]
        if not ready:
            self._waiting_texts[request.message.id] = request
            return
        handle = min(ready, key=lambda one: len(one.texts))
        handle.texts[request.message.id] = request
        handle.instance.post(request.message)

    def _forget_text(self, id: int) -> None:
        self._waiting_texts.pop(id, None)
        for handle in self._handles:
            handle.texts.pop(id, None)
        self._retire_idle()

    def count(self, handle: EngineHandle, figures: EngineStats) -> int:
        """An engine's own counters have moved on; all tokens computed so far."""
        before, handle.figures = handle.figures, figures
        self.steps += figures.steps - before.steps
        for name in _COUNTED:
            more = getattr(figures, name) - getattr(before, name)
            setattr(self._counters, name, getattr(self._counters, name) + more)
        self._gauge()
        return self._counters.prompt_tokens + self._counters.generated_tokens

    async def shrink(self, bytes: int) -> int:
        """Have about so many bytes of cache given back; how many they were."""
        given = 0
        for handle in [one for one in self._handles if one.ready]:
            if given < bytes:
                freed = await self._resize_cache(handle, Shrink(bytes - given))
                handle.given_back += freed
                given += freed
        return given

    async def grow(self, bytes: int) -> int:
        """Let them use at most so many bytes of cache again; how many they are."""
        taken = 0
        for handle in [one for one in self._handles if one.ready]:
            more = min(bytes - taken, handle.given_back)
            if more > 0:
                used = await self._resize_cache(handle, Grow(more))
                handle.given_back -= used
                taken += used
        return taken

    async def _resize_cache(self, handle: EngineHandle, message: Shrink | Grow) -> int:
        """What the engine answers; 0 when it dies meanwhile, or hangs, of which it dies."""
        handle.resized = self._loop.create_future()
        handle.instance.post(message)
        try:
            async with asyncio.timeout(self._stall_s):
                return await handle.resized
        except TimeoutError:
            handle.instance.kill(
                f"did not change its cache for {self._stall_s} s (stall_seconds) and was killed"
            )
            return 0
        finally:
            handle.resized = None

    def resize(self, instances: Sequence[Instance]) -> None:
        """Run on exactly these from now on; others are closed after their last answer."""
        known = {id(handle.instance) for handle in self._handles}
        wanted = {id(instance) for instance in instances}
        for handle in self._handles:
            handle.leaving = handle.leaving or id(handle.instance) not in wanted
        for instance in instances:
            assert isinstance(instance, EngineInstance)
            if id(instance) not in known:
                self._handles.append(handle := EngineHandle(instance, instance.deaths))
                instance.on_message = self._receiver(handle)
                instance.changed = self._changed
        self._retire_idle()
        self._ask_again()
        self._on_ready()

    async def retired(self) -> None:
        """Return when every engine that gets no more work has ended."""
        while any(handle.leaving for handle in self._handles) or self._retiring:
            self._left.clear()
            if self._retiring:
                await asyncio.wait(set(self._retiring))
            else:
                await self._left.wait()

    async def close(self) -> None:
        """End every process."""
        if self._watch is not None:
            self._watch.cancel()
        self._closed = True
        for texts in (self._waiting_texts, *(handle.texts for handle in self._handles)):
            for request in texts.values():
                if not request.answer.done():
                    request.answer.set_exception(ShutDown(_SHUT_DOWN))
        handles, self._handles = self._handles, []
        closing = [asyncio.to_thread(handle.instance.close) for handle in handles]
        await asyncio.gather(*closing, *self._retiring)
        self._gauge()

    def _receiver(self, handle: EngineHandle) -> Callable[[Message], None]:
        """What the engine's thread calls: the message goes on to the loop."""

        def receive(message: Message) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to answer
                self._loop.call_soon_threadsafe(self._receive, handle, message)

        return receive

    def _receive(self, handle: EngineHandle, message: Message) -> None:
        if isinstance(message, TokeniserReply):  # which says nothing of its steps
            request = handle.texts.get(message.id)
            if request is not None and not request.answer.done():
                request.answer.set_result(message)
            return
        handle.last_message_ns = time.monotonic_ns()
        if not isinstance(message, ResizeReply):
            self._on_message(handle, message)
        elif handle.resized is not None and not handle.resized.done():
            handle.resized.set_result(message.bytes)
        if handle.leaving:
            self._retire_idle()

    def _changed(self) -> None:
        """From any thread: an engine became ready, or died."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look_at_deaths)

    def _look_at_deaths(self) -> None:
        for handle in self._handles:
            if handle.deaths != handle.instance.deaths:
                handle.deaths = handle.instance.deaths
                self._died(handle)
            if handle.owes and handle.ready:
                handle.owes = False
                handle.instance.post(Shrink(handle.given_back))
        self._gauge()
        self._retire_idle()
        if self.ready:
            self._ask_again()
            self._on_ready()

    def _ask_again(self) -> None:
        waiting, self._waiting_texts = self._waiting_texts, {}
        for request in waiting.values():
            self._give_text(request)

    def _died(self, handle: EngineHandle) -> None:
        """An engine has died with whatever was in it."""
        handle.figures = _NOTHING  # what it had counted stays in the counters
        handle.owes = handle.given_back > 0
        if handle.resized is not None and not handle.resized.done():
            handle.resized.set_result(0)
        tickets, handle.tickets = dict.fromkeys(handle.tickets.values()), {}
        for ticket in tickets:
            self._on_death(ticket)
        texts, handle.texts = handle.texts, {}
        for request in texts.values():
            self._retry_text(request)

    def _retry_text(self, request: TokeniserRequest) -> None:
        """The engine has died that was to read a text."""
        if request.answer.done():
            return
        if request.again:
            request.answer.set_exception(
                InstanceDied("the engine's process died again while it read the text")
            )
            return
        request.again = True
        self._give_text(request)

    def _look(self) -> None:
        """Is every engine that has work getting on with it?"""
        self._watch = None
        now_ns, stall_s = time.monotonic_ns(), self._stall_s
        for handle in self._handles:
            if (
                handle.tickets
                and handle.ready
                and now_ns - handle.last_message_ns > stall_s * 1_000_000_000
            ):
                handle.instance.kill(
                    f"had work and took no step for {stall_s} s (stall_seconds) and was killed"
                )
        if any(handle.tickets for handle in self._handles):
            self._watch = self._loop.call_later(LOOK_S, self._look)

    def _gauge(self) -> None:
        for name in _GAUGES:
            total = sum(getattr(handle.figures, name) for handle in self._handles)
            setattr(self._counters, name, total)

    def _retire_idle(self) -> None:
        for handle in [one for one in self._handles if one.leaving and one.idle]:
            self._handles.remove(handle)
            task = self._loop.create_task(asyncio.to_thread(handle.instance.close))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self._left.set()
