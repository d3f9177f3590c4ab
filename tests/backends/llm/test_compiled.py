"""Every kernel, of every set of instructions this CPU has, against the same in plain torch."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from backends.llm.errors import NoKernels
from backends.llm.kernels.compile import SETS, cpu_flags
from backends.llm.kernels.library import kernels
from backends.llm.model.decoder import Decoder
from backends.llm.model.rope import rope_tables
from backends.llm.ops.compiled import CompiledOps
from backends.llm.ops.quantise import QuantisedTensor, quantise_int4, quantise_int8, restore
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import AttentionSpec, Precision, QueryKeySpec
from backends.llm.rows import pack
from backends.llm.span import Span
from support.llm import (
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


def known_here() -> Iterator[object]:
    """The sets of this CPU; the quick tests look at the one that it would use."""
    found = [one for one in SETS if one.needed <= cpu_flags()]
    for number, one in enumerate(found):
        yield pytest.param(one, id=one.name, marks=[pytest.mark.slow] if number else [])


@pytest.fixture(scope="module", autouse=True, params=known_here())
def only_these_instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backends.llm.kernels.compile.SETS", (request.param,))
        kernels.cache_clear()
        yield
    kernels.cache_clear()


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
    wide = compiled().pack([weight], bias, precision, wide=True)
    assert_near(wide(x), whole @ known.T + bias, 1e-4)
    narrow = compiled().pack([weight], None, precision)
    assert_near(narrow(x), whole @ known.T, 4e-3)
    assert narrow(x).dtype is BF16


@pytest.mark.parametrize("count", [1, 2, 5, 13])
@pytest.mark.parametrize("inputs", [32, 896])
@pytest.mark.parametrize("power", [1, 3])
def test_int8_is_exact_but_for_its_last_two_steps(inputs: int, count: int, power: int) -> None:
    """The third power has few large numbers, as the rows of real models have."""
    weight, bias = noise(96, inputs), noise(96, seed=1)
    x = (noise(count, inputs, seed=2) ** power).to(BF16)
    packed, row = quantise_int8(weight), quantise_int8(x)
    scaled = _product(row.values, packed.values) * row.scales
    wanted = (scaled.double() * packed.scales.T.double() + bias.double()).float()
    assert torch.equal(compiled().pack([weight], bias, "int8", wide=True)(x), wanted)


@pytest.mark.parametrize("stored", [torch.float32, BF16, torch.float16, torch.float64])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_weights_lie_side_by_side_whatever_they_are_stored_in(
    precision: Precision, stored: torch.dtype
) -> None:
    parts = [noise(count, 64, seed=count).to(stored) for count in (16, 24, 1, 7, 33)]
    whole = torch.cat(parts)
    x = rows(5, 64, 1)
    found = compiled().pack(parts, None, precision, wide=True)(x)
    assert torch.equal(found, compiled().pack([whole.float()], None, precision, wide=True)(x))


@pytest.mark.parametrize(
    ("precision", "quantise"), [("int8", quantise_int8), ("int4", quantise_int4)]
)
def test_stored_weights_lie_beside_those_that_are_quantised(
    precision: Precision, quantise: Callable[[Tensor], QuantisedTensor]
) -> None:
    parts = [noise(24, 64), noise(9, 64, seed=1), noise(40, 64, seed=2)]
    mixed = [parts[0], quantise(parts[1]), quantise(parts[2])]
    x = rows(3, 64, 3)
    found = compiled().pack(mixed, None, precision, wide=True)(x)
    assert torch.equal(found, compiled().pack(parts, None, precision, wide=True)(x))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_an_output_with_a_weight_that_is_no_number_gives_none(
    precision: Precision, wrong: float
) -> None:
    weight = noise(40, 64)
    weight[33, 5] = wrong
    found = compiled().pack([weight], None, precision, wide=True)(rows(2, 64, 1))
    assert not found[:, 33].isfinite().any()
    assert found[:, :33].isfinite().all()
    assert found[:, 34:].isfinite().all()


def test_the_largest_numbers_do_not_overflow_int8() -> None:
    """The scales are one, so that the results are the whole numbers themselves."""
    x, weight = _extremes(127, -127), _extremes(127, -127)
    found = compiled().pack([weight], None, "int8", wide=True)(x.to(BF16))
    assert torch.equal(found, _product(x, weight))


def test_the_largest_numbers_do_not_overflow_int4() -> None:
    x, weight = _extremes(127, -127), _extremes(7, -8)
    weight[:, ::32] = -8  # else a group of sevens would be stored as eights with a scale
    found = compiled().pack([weight], None, "int4", wide=True)(x.to(BF16))
    assert torch.equal(found, _product(x, weight))


def _extremes(high: int, low: int) -> Tensor:
    """Rows of 4,864 numbers that are the one or the other: alike, in turns of any length, mixed."""
    places = torch.arange(4864)
    turns = [places // length % 2 == 0 for length in (4864, 1, 2, 4, 8, 16, 32, 2432)]
    mixed = noise(5, 4864, seed=4) > 0
    chosen = torch.cat([torch.stack(turns), ~torch.stack(turns), mixed])
    return torch.where(chosen, float(high), float(low))


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return (x.long() @ weight.long().T).float()


@pytest.mark.parametrize(("count", "inputs"), [(13, 64), (110, 4864)])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_row_is_computed_alike_in_any_company(
    precision: Precision, count: int, inputs: int
) -> None:
    linear = compiled().pack([noise(192, inputs)], None, precision, wide=True)
    x = rows(count, inputs)
    together = linear(x)
    for index in {*range(0, count, 7), *range(count - 13, count)}:
        assert torch.equal(linear(x[index : index + 1])[0], together[index])


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
    "sight",
    [AttentionSpec(None, 0.2, None), AttentionSpec(20, 0.2, None), AttentionSpec(5, 0.2, 3.0)],
)
@pytest.mark.parametrize("changes", ATTENTIONS.values(), ids=ATTENTIONS)
def test_attention_over_prompts_chunks_and_single_rows(
    changes: dict[str, object], sight: AttentionSpec
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


CUTS = {
    257: ([257], [100, 1, 156], [255, 1, 1], [256, 1]),
    600: ([600], [100, 1, 499], [599, 1]),
}
"""Chunks in which so many tokens are computed; 256 tokens are what some kernels take at a time."""


@pytest.mark.parametrize("sight", [AttentionSpec(None, 0.2, None), AttentionSpec(300, 0.1, None)])
@pytest.mark.parametrize("changes", [{"heads": 14, "kv_heads": 2}, {"head_dim": 80}])
@pytest.mark.parametrize("context", CUTS)
def test_attention_over_long_contexts_is_alike_however_they_are_cut(
    context: int, changes: dict[str, object], sight: AttentionSpec
) -> None:
    ours, theirs = compiled(**changes), exact(**changes)
    config = ours.config
    turn, blocks = _turn(ours, context), range(2, 2 + -(-context // BLOCK_TOKENS))
    qkv = rows(context, config.q_width + 2 * config.kv_width)

    def in_parts(ops: TorchOps, sizes: list[int]) -> Tensor:
        cache, start, results = ops.new_cache(config, blocks.stop, "auto")[0], 0, []
        for size in sizes:
            batch = pack([Span([0] * size, start, blocks, 0)], BLOCK_TOKENS)
            part = qkv[start : start + size].clone().to(ops.dtype)
            results.append(_attend(ops, part, turn, cache, sight, batch))
            start += size
        return torch.cat(results)

    results = [in_parts(ours, sizes) for sizes in CUTS[context]]
    assert_near(results[0], in_parts(theirs, [context]), 1.5e-2)
    for result in results[1:]:
        assert torch.equal(result, results[0])


def _turn(ops: CompiledOps, positions: int = CONTEXT) -> QueryKeySpec:
    config = ops.config
    rope = config.layers[0].rope
    assert rope is not None
    cosines, sines = rope_tables(rope, positions)
    if config.head_norm == "none":
        return QueryKeySpec(cosines, sines, "none", None, None)
    whole = config.head_norm == "width"
    q_norm = noise(config.q_width if whole else config.head_dim, seed=8)
    k_norm = noise(config.kv_width if whole else config.head_dim, seed=9)
    return QueryKeySpec(cosines, sines, config.head_norm, q_norm, k_norm)


def _attend(
    ops: TorchOps,
    qkv: Tensor,
    turn: QueryKeySpec,
    cache: object,
    sight: AttentionSpec,
    batch: object,
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


@pytest.mark.parametrize("wrong", [torch.nan, -torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("at", [0, 5, 95])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_a_row_that_is_not_numbers_gives_none_and_spoils_no_other(
    precision: Precision, at: int, wrong: float
) -> None:
    linear = compiled().pack([noise(96, 96)], noise(96, seed=1), precision, wide=True)
    x = rows(7, 96, 2)
    wanted = linear(x)
    x[3, at] = wrong
    found = linear(x)
    others = [0, 1, 2, 4, 5, 6]
    assert not found[3].isfinite().any()
    assert torch.equal(found[others], wanted[others])
