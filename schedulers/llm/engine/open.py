"""An engine for a version: the model loaded as its config says, a scheduler of its cache's size."""

import importlib.util
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from backends.llm.embedder import Embedder, open_embedder
from backends.llm.load import LoadSettings, load
from backends.llm.load_phases import PhaseClock
from backends.llm.plan import BLOCK_TOKENS, ServePlan
from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.llm import engine_messages
from schedulers.llm.engine.engine import Compile, Engine, Vocabulary
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler

UNBOUNDED = 1 << 40
"""What waits is bounded by the gateway, which can refuse at once."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine, and what its process says of it."""

    engine: Engine
    facts: engine_messages.EngineOpened
    tokeniser: Tokeniser


def open_generating(
    folder: Path, plan: ServePlan, device: str, wake: Callable[[], None], clock: PhaseClock
) -> OpenedEngine:
    """The engine a plan makes of a checkpoint folder on "cpu" or "cuda:N"; `wake()` is called, from
    any thread, when a grammar has been compiled; `clock` is told of the load's phases. Raises
    LoadFailed with what is wrong: the file or field, or the device."""
    model = load(folder, _settings(plan, device), clock)
    limits = EngineLimits(
        step_tokens=plan.settings.step_tokens,
        step_s=plan.settings.step_milliseconds / 1e3,
        running=plan.settings.max_running,
        waiting=UNBOUNDED,
        waiting_tokens=UNBOUNDED,
        context=model.context,
    )
    pool = BlockPool(model.plan.blocks, BLOCK_TOKENS)
    vocabulary = Vocabulary(model.tokeniser, model.config.vocabulary, model.config.end_ids)
    table = model.tokeniser.table(vocabulary.size)
    compile = _compiler(vocabulary, wake)
    engine = Engine(SequenceScheduler(limits, pool), model.runner, vocabulary, compile)
    clock.end("vocabulary")
    memory = model.plan
    facts = engine_messages.EngineOpened(
        ops=model.ops,
        context=model.context,
        blocks=memory.blocks,
        block_tokens=BLOCK_TOKENS,
        weights_bytes=memory.weights,
        workspace_bytes=memory.workspace,
        block_bytes=memory.block,
        dimensions=0,
        token_ends=table.ends,
        token_letters=table.letters,
        specials=tuple(model.tokeniser.specials),
        markers=model.tokeniser.markers,
        phases=tuple(clock.phases),
    )
    return OpenedEngine(engine, facts, model.tokeniser)


def open_embedding(folder: Path, plan: ServePlan, device: str, clock: PhaseClock) -> Embedder:
    """Raises LoadFailed with what is wrong: the file or field, or the device."""
    return open_embedder(folder, _settings(plan, device), plan.settings.pooling, clock)


def _settings(plan: ServePlan, device: str) -> LoadSettings:
    settings = plan.settings
    return LoadSettings(
        memory_budget=plan.budget,
        precision=settings.precision,
        cache_type=settings.cache_type,
        block_tokens=BLOCK_TOKENS,
        context=plan.context,
        step_tokens=settings.step_tokens,
        compiled=settings.kernels == "auto",
        device=device,
    )


def _compiler(vocabulary: Vocabulary, wake: Callable[[], None]) -> Compile | None:
    """None where llguidance is not installed."""
    if importlib.util.find_spec("llguidance") is None:
        _log.warning("llguidance is not installed: no request may ask for a grammar")
        return None
    from backends.llm.grammar.compiled import GrammarCompiler
    from backends.llm.grammar.spec import Grammar, GrammarSpec
    from backends.llm.grammar.thread import GrammarThread

    thread = GrammarThread(
        GrammarCompiler(vocabulary.tokeniser, vocabulary.size, vocabulary.end_ids)
    )

    def compile(spec: GrammarSpec) -> "Future[Grammar]":
        future = thread(spec)
        future.add_done_callback(lambda _: wake())
        return future

    return compile


def open_engine(
    folder: Path, settings: LoadSettings, *, running: int = 64, waiting: int = 512
) -> Engine:
    """An engine in this process. Raises LoadFailed with the file or field that is wrong, or the
    memory that is missing."""
    loaded = load(folder, settings)
    limits = EngineLimits(
        step_tokens=settings.step_tokens,
        running=running,
        waiting=waiting,
        context=loaded.context,
    )
    pool = BlockPool(loaded.plan.blocks, settings.block_tokens)
    vocabulary = Vocabulary(loaded.tokeniser, loaded.config.vocabulary, loaded.config.end_ids)
    return Engine(SequenceScheduler(limits, pool), loaded.runner, vocabulary)
