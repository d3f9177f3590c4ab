"""Promises of `backends.llm.ops.seam` that the operations of every device keep: all that this
machine has, against plain torch in float32."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from backends.llm.config.decoder import Activation
from backends.llm.errors import NoKernels
from backends.llm.kernels.compile import SETS, cpu_flags
from backends.llm.kernels.library import kernels
from backends.llm.ops.compiled import CompiledOps
from backends.llm.ops.cuda import CudaOps, triton_kernels
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import AttentionSpec, CacheType, Ops, Precision, QueryKeySpec
from backends.llm.rows import pack
from backends.llm.span import Span
from support.llm import BLOCK_TOKENS, decoder_config
from support.triton import DEVICE, ON_GPU

BF16, FP32 = torch.bfloat16, torch.float32
CONFIG = decoder_config()
EXACT = TorchOps(CONFIG, FP32, BLOCK_TOKENS)
Make = Callable[[CacheType], Ops]
COMPILED = {f"compiled, {one.name}": one for one in SETS if one.needed <= cpu_flags()}
OTHERS: dict[str, Make] = {
    "torch, float32": lambda cache_type: TorchOps(CONFIG, FP32, BLOCK_TOKENS),
    "torch, bfloat16": lambda cache_type: TorchOps(CONFIG, BF16, BLOCK_TOKENS),
    "cuda in plain torch": lambda cache_type: CudaOps(CONFIG, BF16, BLOCK_TOKENS, DEVICE, None),
    "cuda": lambda cache_type: CudaOps(CONFIG, BF16, BLOCK_TOKENS, DEVICE, triton_kernels()),
}
ON_THE_GPU = [pytest.mark.gpu] if ON_GPU else []


@pytest.fixture(
    scope="module",
    params=[
        *COMPILED,
        *(pytest.param(name, marks=ON_THE_GPU * name.startswith("cuda")) for name in OTHERS),
    ],
)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes operations of one kind, for a cache of a type."""
    if request.param in OTHERS:
        yield available(OTHERS[request.param])
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backends.llm.kernels.compile.SETS", (COMPILED[request.param],))
        kernels.cache_clear()
        yield available(lambda cache_type: CompiledOps(CONFIG, BLOCK_TOKENS, cache_type))
    kernels.cache_clear()


def available(make: Make) -> Make:
    try:
        make("auto")
    except NoKernels as error:
        pytest.skip(f"cannot be had here: {error}")
    return make


@pytest.fixture
def ops(make: Make) -> Ops:
    return make("auto")


def compute_type(ops: Ops) -> torch.dtype:
    assert isinstance(ops, TorchOps)
    return ops.dtype


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(count: int, width: int, seed: int = 0) -> Tensor:
    """Numbers that bfloat16 has too."""
    return noise(count, width, seed=seed).to(BF16).float()


def there(ops: Ops, tensor: Tensor) -> Tensor:
    """In the type and on the device in which operations take it."""
    return tensor.to(ops.device, compute_type(ops))


def assert_near(found: Tensor, wanted: Tensor, share: float) -> None:
    """The error's size against the size of what is wanted."""
    assert found.shape == wanted.shape
    error = (found.cpu().float() - wanted).norm() / wanted.norm()
    assert error < share, f"relative error {error:.2e}"


def test_a_batch_is_placed_on_the_device(ops: Ops) -> None:
    batch = ops.place(pack([Span([5, 6], 0, (1,), 0)], ops.block_tokens))

    assert batch.tokens.device == ops.device
    assert batch.tokens.tolist() == [5, 6]


def test_tokens_are_embedded_in_float32(ops: Ops) -> None:
    weight = rows(CONFIG.vocabulary, CONFIG.hidden)

    stream = ops.embed(ops.table(weight), torch.tensor([7, 0, 7], device=ops.device), 2.0)

    assert stream.dtype is FP32
    assert torch.equal(stream.cpu(), weight[[7, 0, 7]] * 2)


@pytest.mark.parametrize("wide", [False, True])
def test_a_linear_takes_and_gives_the_compute_type_and_float32_where_it_is_wide(
    ops: Ops, wide: bool
) -> None:
    weight, bias, x = rows(96, 64), noise(96, seed=1), rows(5, 64, 2)
    linear = ops.pack([weight.clone()], bias, "bfloat16", wide)

    found = linear(there(ops, x))

    assert wide or found.dtype is compute_type(ops)
    assert linear.bytes >= weight.numel() * 2
    assert_near(found, x @ weight.T + bias, 6e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4"])
def test_a_linear_of_several_weights_keeps_none_of_them(ops: Ops, precision: Precision) -> None:
    parts, x = [rows(64, 64), rows(32, 64, 1)], rows(5, 64, 2)
    linear = ops.pack(parts, None, precision)
    found = linear(there(ops, x))

    assert_near(found, x @ torch.cat(parts).T, 0.12)
    for part in parts:
        part.zero_()
    assert torch.equal(linear(there(ops, x)), found)


@pytest.mark.parametrize("count", [1, 20])
def test_the_residual_stream_is_added_to_in_place_and_normed(ops: Ops, count: int) -> None:
    weight, delta = noise(96, seed=3), rows(count, 96, 1)
    ours, theirs = noise(count, 96, seed=2).to(ops.device), noise(count, 96, seed=2)

    normed = ops.add_norm(ours, there(ops, delta), 0.5, weight.to(ops.device), 1e-5)

    assert normed.dtype is compute_type(ops)
    assert_near(normed, EXACT.add_norm(theirs, delta, 0.5, weight, 1e-5), 4e-3)
    torch.testing.assert_close(ours.cpu(), theirs)


def test_the_stream_comes_in_the_compute_type_and_is_added_to_in_place(ops: Ops) -> None:
    stream, delta = noise(3, 96), rows(3, 96, 1)
    ours = stream.to(ops.device, copy=True)

    same = ops.add(ours, None, 1.0)
    added = ops.add(ours, there(ops, delta), 0.5)

    assert added.dtype is compute_type(ops)
    assert_near(same, stream, 4e-3)
    assert_near(added, stream + delta / 2, 4e-3)
    torch.testing.assert_close(ours.cpu(), stream + delta / 2)


def test_what_a_half_of_a_layer_gave_is_normed(ops: Ops) -> None:
    weight, x = noise(96, seed=3), rows(5, 96)

    found = ops.norm(there(ops, x), weight.to(ops.device), 1e-5)

    assert_near(found, EXACT.norm(x, weight, 1e-5), 4e-3)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "gelu"])
def test_the_first_half_is_the_gate_of_the_second(ops: Ops, activation: Activation) -> None:
    x = rows(5, 192) * 3

    assert_near(ops.gate(there(ops, x), activation), EXACT.gate(x, activation), 5e-3)


# the cache

TABLES = (20, 4, 6, 5, 7), (9, 3), (1, 0, 2, 30)
PASSES = [
    [Span([0] * count, 0, table, 0) for count, table in zip((50, 17, 9), TABLES, strict=True)],
    [Span([0], 50, TABLES[0], 0), Span([0], 17, TABLES[1], 0), Span([0] * 40, 9, TABLES[2], 0)],
]
"""Prompts in scattered blocks; then single rows of unlike contexts beside a chunk."""


def attended(ops: Ops, cache_type: CacheType, sight: AttentionSpec) -> tuple[Tensor, object]:
    """What the last pass gives, and the cache."""
    cache = ops.new_cache(CONFIG, 32, cache_type)[0]
    turn = QueryKeySpec(None, None, "none", None, None)
    for number, spans in enumerate(PASSES):
        batch = ops.place(pack(spans, ops.block_tokens))
        width = CONFIG.q_width + 2 * CONFIG.kv_width
        qkv = there(ops, rows(len(batch.tokens), width, number))
        plan = ops.plan(batch)
        found = ops.attend(ops.store(qkv, turn, cache, plan, 1e-5), cache, plan, sight)
    return found, cache


@pytest.mark.parametrize("cache_type", ["auto", "int8"])
@pytest.mark.parametrize(
    "sight",
    [AttentionSpec(None, 0.2, None), AttentionSpec(20, 0.2, None), AttentionSpec(5, 0.2, 3.0)],
)
def test_attention_over_the_cache_is_that_of_float32(
    make: Make, sight: AttentionSpec, cache_type: CacheType
) -> None:
    ops = make(cache_type)

    found, _ = attended(ops, cache_type, sight)

    assert found.dtype is compute_type(ops)
    assert_near(found, attended(EXACT, "auto", sight)[0], 2e-2)


@pytest.mark.parametrize("cache_type", ["auto", "int8"])
def test_a_cache_says_its_size_and_has_the_blocks_first(make: Make, cache_type: CacheType) -> None:
    caches = make(cache_type).new_cache(CONFIG, 32, cache_type)

    assert len(caches) == len(CONFIG.layers)
    for cache in caches:
        assert cache.bytes == sum(one.nbytes for one in cache.tensors)
        assert [len(one) for one in cache.tensors] == [32] * len(cache.tensors)


@pytest.mark.parametrize("cache_type", ["auto", "int8"])
def test_clearing_zeroes_its_blocks_and_no_others(make: Make, cache_type: CacheType) -> None:
    ops = make(cache_type)
    cache = ops.new_cache(CONFIG, 32, cache_type)[0]
    for numbers in cache.tensors:
        numbers.fill_(1)

    ops.clear(cache, [4, 9])

    for numbers in cache.tensors:
        flat = numbers.flatten(1)
        assert [block for block in range(32) if not flat[block].any()] == [4, 9]
        assert [block for block in range(32) if flat[block].all()] == [
            block for block in range(32) if block not in (4, 9)
        ]
