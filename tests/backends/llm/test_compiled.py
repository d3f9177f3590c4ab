"""Every kernel against the same operation in plain torch."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from backends.llm.decoder import Decoder
from backends.llm.errors import NoKernels
from backends.llm.kernels.library import kernels
from backends.llm.ops.compiled import CompiledOps
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import Precision, Sight, Turn
from backends.llm.quantise import quantise_int4, quantise_int8, restore
from backends.llm.rope import rope_tables
from backends.llm.rows import Span, pack
from llm_support import (
    BLOCK_TOKENS,
    CONTEXT,
    VARIANTS,
    decoder_config,
    load_decoder,
    logits,
    make_checkpoint,
    prompt,
)

try:
    kernels()
except NoKernels as error:
    pytest.skip(f"no compiled kernels here: {error}", allow_module_level=True)

BF16 = torch.bfloat16


def compiled(**changes: object) -> CompiledOps:
    return CompiledOps(decoder_config(**changes), BLOCK_TOKENS)


def exact(**changes: object) -> TorchOps:
    """The reference in float32, so that only the kernel's own rounding is seen."""
    return TorchOps(decoder_config(**changes), torch.float32, BLOCK_TOKENS)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(count: int, width: int, seed: int = 0) -> Tensor:
    return noise(count, width, seed=seed).to(BF16)


def assert_near(found: Tensor, wanted: Tensor, share: float) -> None:
    """The error's size against the size of what is wanted."""
    assert found.shape == wanted.shape
    error = (found.float() - wanted.float()).norm() / wanted.float().norm()
    assert error < share, f"relative error {error:.2e}"


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 33])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (96, 64), (161, 160), (1100, 96)])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_linear_multiplies(precision: Precision, outputs: int, inputs: int, count: int) -> None:
    weight, bias, x = noise(outputs, inputs), noise(outputs, seed=1), rows(count, inputs, 2)
    known = {
        "bfloat16": lambda: weight.to(BF16).float(),
        "int8": lambda: restore(quantise_int8(weight)),
        "int4": lambda: restore(quantise_int4(weight)),
    }[precision]()
    whole = x.float() if precision == "bfloat16" else restore(quantise_int8(x))
    wide = compiled().pack(weight, bias, precision, wide=True)
    assert_near(wide(x), whole @ known.T + bias, 1e-4)
    narrow = compiled().pack(weight, None, precision)
    assert_near(narrow(x), whole @ known.T, 4e-3)
    assert narrow(x).dtype is BF16


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_row_is_computed_alike_in_any_company(precision: Precision) -> None:
    linear = compiled().pack(noise(192, 64), None, precision, wide=True)
    x = rows(13, 64)
    together = linear(x)
    for index in range(13):
        assert torch.equal(linear(x[index : index + 1])[0], together[index])


@pytest.mark.parametrize("count", [1, 20])
def test_the_residual_stream_is_added_to_and_normed(count: int) -> None:
    weight, delta = noise(96, seed=3), rows(count, 96, 1)
    stream = noise(count, 96, seed=2)
    ours, theirs = stream.clone(), stream.clone()
    found = compiled().add_norm(ours, delta, 0.5, weight, 1e-5)
    assert_near(found, exact().add_norm(theirs, delta, 0.5, weight, 1e-5), 4e-3)
    torch.testing.assert_close(ours, theirs)
    assert_near(compiled().add(ours, None, 1.0), theirs, 4e-3)
    assert_near(compiled().norm(delta, weight, 1e-5), exact().norm(delta, weight, 1e-5), 4e-3)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "gelu"])
def test_the_gate(activation: str) -> None:
    x = rows(5, 192) * 3
    wanted = exact().gate(x.float(), activation)  # type: ignore[arg-type]
    assert_near(compiled().gate(x, activation), wanted, 5e-3)  # type: ignore[arg-type]


ATTENTIONS = {
    "plain": {},
    "one key head": {"heads": 5, "kv_heads": 1},
    "as many key heads": {"heads": 4, "kv_heads": 4},
    "twelve to one": {"heads": 24, "kv_heads": 2, "head_dim": 32},
    "wide heads": {"head_dim": 128},
    "wider heads": {"head_dim": 256},
    "odd heads": {"head_dim": 80},
    "normed": {"head_norm": "head"},
    "normed at once": {"head_norm": "width"},
    "partly turned": {"rope_dims": 16},
}


@pytest.mark.parametrize(
    "sight", [Sight(None, 0.2, None), Sight(20, 0.2, None), Sight(5, 0.2, 3.0)]
)
@pytest.mark.parametrize("changes", ATTENTIONS.values(), ids=ATTENTIONS)
def test_attention_over_prompts_chunks_and_single_rows(
    changes: dict[str, object], sight: Sight
) -> None:
    ours, theirs = compiled(**changes), exact(**changes)
    config = ours.config
    turn = _turn(ours)
    caches = [ops.new_cache(config, 32, "auto")[0] for ops in (ours, theirs)]
    passes = [
        (Span([0] * 50, 0, range(4, 9), 0), Span([0] * 7, 0, (20,), 0)),
        (Span([0], 50, range(4, 9), 0), Span([0] * 40, 7, (20, 3, 2), 0), Span([0], 0, (1,), 0)),
    ]
    for number, spans in enumerate(passes):
        batch = pack(spans, BLOCK_TOKENS)
        qkv = rows(len(batch.tokens), config.q_width + 2 * config.kv_width, number)
        results = [
            _attend(ops, qkv.clone().to(ops.dtype), turn, cache, sight, batch)
            for ops, cache in zip((ours, theirs), caches, strict=True)
        ]
        assert_near(results[0], results[1], 1.5e-2)


def _turn(ops: CompiledOps) -> Turn:
    config = ops.config
    rope = config.layers[0].rope
    assert rope is not None
    cosines, sines = rope_tables(rope, CONTEXT)
    if config.head_norm == "none":
        return Turn(cosines, sines, "none", None, None)
    whole = config.head_norm == "width"
    q_norm = noise(config.q_width if whole else config.head_dim, seed=8)
    k_norm = noise(config.kv_width if whole else config.head_dim, seed=9)
    return Turn(cosines, sines, config.head_norm, q_norm, k_norm)


def _attend(
    ops: TorchOps, qkv: Tensor, turn: Turn, cache: object, sight: Sight, batch: object
) -> Tensor:
    plan = ops.plan(batch)  # type: ignore[arg-type]
    queries = ops.store(qkv, turn, cache, plan, 1e-5)  # type: ignore[arg-type]
    return ops.attend(queries, cache, plan, sight)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint(request.param, made)
    return made


def test_a_whole_model_is_close_to_float32(folder: Path) -> None:
    tokens = prompt(1, 75)
    wanted = logits(load_decoder(folder), Span(tokens, 0, range(8), 75))
    limits: dict[Precision, float] = {"bfloat16": 0.05, "int8": 0.08, "int4": 0.4}
    for precision, limit in limits.items():
        decoder = load_decoder(folder, precision=precision, make_ops=_compiled_ops)
        assert_near(_in_chunks(decoder, tokens), wanted, limit)


def test_an_int8_cache_is_attended_to_in_torch(folder: Path) -> None:
    tokens = prompt(1, 75)
    wanted = logits(load_decoder(folder), Span(tokens, 0, range(8), 75))
    decoder = load_decoder(
        folder,
        precision="bfloat16",
        cache_type="int8",
        make_ops=lambda config: CompiledOps(config, BLOCK_TOKENS, "int8"),
    )
    assert_near(_in_chunks(decoder, tokens), wanted, 0.06)


@pytest.mark.parametrize("variant", ["llama", "gemma2", "qwen3", "olmo2"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_sequence_is_computed_alike_however_it_is_cut(
    tmp_path: Path, variant: str, precision: Precision
) -> None:
    make_checkpoint(variant, tmp_path)
    decoder = load_decoder(tmp_path, precision=precision, make_ops=_compiled_ops)
    tokens = prompt(1, 75)
    whole = logits(decoder, Span(tokens, 0, range(8), 75))
    assert torch.equal(_in_chunks(decoder, tokens), whole)


def _in_chunks(decoder: Decoder, tokens: tuple[int, ...]) -> Tensor:
    cuts = [(0, 50), (50, 51), (51, 75)]
    return torch.cat([logits(decoder, Span(tokens[a:b], a, range(8), b - a)) for a, b in cuts])


_compiled_ops: Callable[..., TorchOps] = lambda config: CompiledOps(config, BLOCK_TOKENS)  # noqa: E731
