"""What a model occupies is known before it is loaded."""

from pathlib import Path

import pytest

from backends.llm.config.families import read_config
from backends.llm.memory import MemoryLayout, block_bytes, plan_memory, weight_bytes
from backends.llm.ops.choose import choose_ops
from backends.llm.ops.seam import CacheType, Precision
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.stream import load_weights
from support.llm import VARIANTS, decoder_config, make_checkpoint


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(request.param, made)
    return made


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4"])
def test_weights_and_blocks_occupy_what_was_computed(folder: Path, precision: Precision) -> None:
    config = read_config(folder)
    kinds: tuple[CacheType, ...] = ("auto", "int8")
    for cache_type in kinds:
        ops = choose_ops(config, precision, cache_type, 16)
        with Checkpoint(folder) as checkpoint:
            weights = load_weights(checkpoint, config, ops, precision)
        layout = MemoryLayout(precision, cache_type, 4 if precision == "float32" else 2, 16)
        assert weights.bytes == pytest.approx(weight_bytes(config, layout), rel=0.02)
        cache = ops.new_cache(config, 10, cache_type)
        assert sum(one.bytes for one in cache) == 10 * block_bytes(config, layout)


def test_what_weights_and_a_step_leave_becomes_blocks() -> None:
    layout = MemoryLayout("int8", "auto", 2, 16)
    plan = plan_memory(decoder_config(), layout, 4 << 20, context=256, step_tokens=32)
    assert plan.total <= 4 << 20 < plan.total + plan.block
