"""The engine's process: loads one version, then works while there is anything to do.

Started by `backends.process.worker_process` as `main(channel fd, heartbeat fd, parent's pid)`.
"""

import logging
from contextlib import suppress
from pathlib import Path

from backends.errors import LoadFailed
from backends.llm.backend import examine
from backends.llm.errors import NoKernels
from backends.llm.kernels.compile import compiled_library
from backends.llm.load import use_threads
from backends.llm.load_phases import PhaseClock, in_words, process_start_s
from backends.llm.plan import ServePlan
from backends.llm.tokens.tokeniser import read_tokeniser
from backends.process.begin import begin
from backends.process.messages import Load, WorkerLoaded, WorkerLoadFailed, decode, encode
from repository.model import ModelConfig, ModelVersion
from repository.process.collector import no_collection
from repository.process.output import LEVEL_MARK
from repository.sandbox.enter import forbid_programs, is_strict
from schedulers.llm.engine.embedding_work import EmbeddingWork
from schedulers.llm.engine.loop import EngineLoop, EngineWork, GenerationWork, Inbox
from schedulers.llm.engine.open import open_embedding, open_generating
from schedulers.llm.engine_messages import EngineOpened

_log = logging.getLogger("engine")


def main(channel_fd: int, heartbeat_fd: int, parent_pid: int) -> None:
    """Serve until the server sends `Close` or is gone."""
    channel = begin(channel_fd, heartbeat_fd, parent_pid)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter(f"{LEVEL_MARK}%(levelname).1s %(message)s"))
    request = decode(channel.receive().payload)
    assert isinstance(request, Load)
    clock = PhaseClock(process_start_s())
    clock.end("start")
    _start_no_programs(request)
    inbox = Inbox()
    loop = EngineLoop(channel, inbox)
    try:
        with no_collection(loads=True):
            work = _load(request, loop, inbox, clock)
    except LoadFailed as error:
        channel.send(encode(WorkerLoadFailed(_named(request, error))))
        return
    channel.send(encode(WorkerLoaded(request.config, _device(request), 0, streams=False)))
    loop.run(work)


def _start_no_programs(request: Load) -> None:
    """Where the sandbox is strict, compile our kernels before a foreign file is read, and start
    nothing from then on. Triton compiles for a GPU while it runs, which must go on."""
    if not is_strict() or request.kind != "cpu":
        return
    with suppress(NoKernels):  # it is told of where they would be used
        compiled_library()
    forbid_programs()


def _load(request: Load, loop: EngineLoop, inbox: Inbox, clock: PhaseClock) -> EngineWork:
    version = ModelVersion(
        request.name,
        request.number,
        Path(request.folder),
        Path(request.path),
        ModelConfig.FromString(request.config),
        request.digest,
    )
    plan = examine(version)
    use_threads(request.threads)
    if plan.embedding is None:
        return _generating(version.path, plan, _device(request), loop, inbox, clock)
    return _embedding(version.path, plan, _device(request), loop, clock)


def _device(request: Load) -> str:
    """As torch names it."""
    return "cpu" if request.kind == "cpu" else f"{request.kind}:{request.device_index}"


def _generating(
    folder: Path,
    plan: ServePlan,
    device: str,
    loop: EngineLoop,
    inbox: Inbox,
    clock: PhaseClock,
) -> EngineWork:
    opened = open_generating(folder, plan, device, lambda: inbox.put(None), clock)
    facts = opened.facts
    _log.info(
        "computes with %s; %d MiB of weights, %d blocks of %d tokens; %s",
        facts.ops,
        facts.weights_bytes >> 20,
        facts.blocks,
        facts.block_tokens,
        in_words(facts.phases),
    )
    loop.send(facts)
    loop.read_with(opened.tokeniser)
    return GenerationWork(opened.engine, facts.block_bytes, loop.send)


def _embedding(
    folder: Path, plan: ServePlan, device: str, loop: EngineLoop, clock: PhaseClock
) -> EngineWork:
    embedder = open_embedding(folder, plan, device, clock)
    tokeniser = read_tokeniser(folder)
    table = tokeniser.table(plan.model.vocabulary)
    clock.end("tokeniser")
    phases = tuple(clock.phases)
    told = embedder.ops, embedder.dimensions, in_words(phases)
    _log.info("embeds with %s, into %d dimensions; %s", *told)
    sizes = (plan.context, 0, 0, 0, plan.least, 0, embedder.dimensions)
    texts = (tuple(tokeniser.specials), tokeniser.markers)
    loop.send(EngineOpened(embedder.ops, *sizes, table.ends, table.letters, *texts, phases))
    loop.read_with(tokeniser)
    return EmbeddingWork(embedder, loop.send)


def _named(request: Load, error: LoadFailed) -> str:
    text, where = str(error), f"model '{request.name}' version {request.number}"
    return text if text.startswith(where) else f"{where}: {text}"
