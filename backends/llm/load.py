"""A checkpoint folder made into something that runs: config, memory plan, weights, tokeniser."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from backends.llm.config.decoder import DecoderConfig
from backends.llm.config.families import read_config
from backends.llm.errors import BadCheckpoint, NoRoom
from backends.llm.graphs import RecordingDecoder
from backends.llm.load_phases import PhaseClock
from backends.llm.memory import MemoryLayout, MemoryPlan, plan_memory
from backends.llm.model.decoder import Decoder
from backends.llm.ops.choose import choose_ops, open_device
from backends.llm.ops.seam import CacheType, Precision
from backends.llm.runner import Runner
from backends.llm.sampling.select_tokens import choose_device_pick, choose_pick
from backends.llm.tokens.tokeniser import Tokeniser, read_tokeniser
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.stream import load_weights

TOLERANCE = 1.02
"""How far what was loaded may exceed what was planned for it."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How to hold a model.

    `memory_budget`: bytes for weights, keys and values, and a step together. `context`: longest
    sequence in tokens; None for the model's own. `step_tokens`: most tokens of one step.
    `compiled`: False computes in plain torch even where our kernels would serve. `device`: "cpu",
    or "cuda:N", and then the process uses that GPU alone. `graphs`: False computes every step one
    operation after the other, even where steps could be recorded.
    """

    memory_budget: int
    precision: Precision = "int8"
    cache_type: CacheType = "auto"
    block_tokens: int = 16
    context: int | None = None
    step_tokens: int = 256
    compiled: bool = True
    device: str = "cpu"
    graphs: bool = True


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that runs. `ops`: which implementation computes; `context`: what was granted."""

    runner: Runner
    tokeniser: Tokeniser
    config: DecoderConfig
    plan: MemoryPlan
    context: int
    ops: str


def use_threads(count: int) -> None:
    """So many threads for every model of this process."""
    torch.set_num_threads(count)


def load(folder: Path, settings: LoadSettings, clock: PhaseClock | None = None) -> LoadedModel:
    """Its phases are told to `clock`. Raises BadCheckpoint, UnknownFamily, NoRoom or NoDevice, all
    of them LoadFailed."""
    clock = clock or PhaseClock(time.monotonic())
    config = read_config(folder)
    tokeniser = read_tokeniser(folder)
    clock.end("tokeniser")
    context = _context(config, settings)
    ops = choose_ops(
        config,
        settings.precision,
        settings.cache_type,
        settings.block_tokens,
        settings.compiled,
        open_device(settings.device),
    )
    width = 4 if settings.precision == "float32" else 2
    layout = MemoryLayout(settings.precision, settings.cache_type, width, settings.block_tokens)
    plan = plan_memory(config, layout, settings.memory_budget, context, settings.step_tokens)
    with Checkpoint(folder) as checkpoint:
        weights = load_weights(checkpoint, config, ops, settings.precision)
        clock.end("weights", checkpoint.bytes)
    make = RecordingDecoder if ops.replays and settings.graphs else Decoder
    decoder = make(config, weights, ops, context, plan.blocks, settings.cache_type)
    _check_plan(plan, weights.bytes, decoder.cache_bytes)
    device_pick = choose_device_pick(ops.device, settings.compiled)
    runner = Runner(decoder, choose_pick(settings.compiled), device_pick)
    clock.end("cache", decoder.cache_bytes)
    return LoadedModel(runner, tokeniser, config, plan, context, ops.name)


def _context(config: DecoderConfig, settings: LoadSettings) -> int:
    context = settings.context or config.positions
    if context > config.positions:
        raise BadCheckpoint(
            f"a context of {context} tokens was asked for; config.json's "
            f"'max_position_embeddings' allows {config.positions}"
        )
    return context


def _check_plan(plan: MemoryPlan, weights: int, cache: int) -> None:
    planned = plan.weights + plan.block * plan.blocks
    if weights + cache > planned * TOLERANCE:
        raise NoRoom(
            f"loaded, the model occupies {weights + cache} bytes (weights {weights}, cache "
            f"{cache}), but {planned} were planned. This is a bug."
        )
