"""The work of an engine's process: requests into the engine, its outputs out to the gateway."""

import time
from collections.abc import Callable

from schedulers.llm.engine import Engine
from schedulers.llm.engine_messages import (
    Cancel,
    Embed,
    EngineStats,
    Grow,
    Message,
    RequestRefused,
    ResizeReply,
    Shrink,
    StepReport,
    Submit,
)
from schedulers.llm.errors import PromptTooLong, TooMuchWaiting
from schedulers.llm.generation import GenerateRequest, GenerationOutput

COUNTS_EVERY_S = 0.25
COMPILING_LOOK_S = 0.05
"""How often the deadlines of requests are looked at that wait for their grammars."""


class GenerationWork:
    """One engine, as `schedulers.llm.loop.EngineWork`."""

    def __init__(self, engine: Engine, block_bytes: int, say: Callable[[Message], None]) -> None:
        self._engine = engine
        self._block_bytes = block_bytes
        self._say = say
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
                self._say(RequestRefused(id, "invalid", "this model gives no embeddings"))

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
            self._say(RequestRefused(id, "long", str(error)))
        except TooMuchWaiting as error:
            self._say(RequestRefused(id, "busy", str(error)))
        except (ValueError, TypeError) as error:
            self._say(RequestRefused(id, "invalid", str(error)))

    def _resized(self, bytes: int) -> None:
        self._say(ResizeReply(bytes))
        self._counted_s = 0.0
        self._report([], time.monotonic_ns())

    def _report(self, outputs: list[GenerationOutput], began_ns: int) -> None:
        started = self._engine.take_started()
        counts = None
        if began_ns / 1e9 - self._counted_s >= COUNTS_EVERY_S or not self._engine.busy:
            self._counted_s = began_ns / 1e9
            counts = self._figures()
        self._say(StepReport(began_ns, started, outputs, counts))

    def _figures(self) -> EngineStats:
        counts = self._engine.counts()
        blocks = counts.blocks
        return EngineStats(
            self._engine.steps, counts.prompt_tokens, counts.generated_tokens,
            counts.prefix_hit_tokens, counts.preemptions, counts.running, counts.waiting,
            counts.waiting_tokens, blocks.in_use, blocks.cached, blocks.empty,
        )  # fmt: skip
