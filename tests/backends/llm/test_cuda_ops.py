"""The operations of a GPU against those in plain torch: there if there is one, else interpreted."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.llm.config.decoder import DecoderConfig
from backends.llm.model.decoder import Decoder
from backends.llm.model.rope import rope_tables
from backends.llm.ops.cuda import CudaOps, triton_kernels
from backends.llm.ops.quantise import quantise_int4, quantise_int8, restore
from backends.llm.ops.reference import CPU, TorchOps
from backends.llm.ops.seam import AttentionSpec, CacheType, Ops, Precision, QueryKeySpec
from backends.llm.rows import ForwardBatch, pack
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
from support.triton import DEVICE, ON_GPU

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = pytest.mark.gpu if ON_GPU else pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
BF16, FP32 = torch.bfloat16, torch.float32
CLOSE = {"atol": 1e-4, "rtol": 0.0}


def on_device(dtype: torch.dtype, **changes: object) -> CudaOps:
    return CudaOps(decoder_config(**changes), dtype, BLOCK_TOKENS, DEVICE, triton_kernels())


def exact(**changes: object) -> TorchOps:
    return TorchOps(decoder_config(**changes), FP32, BLOCK_TOKENS)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_near(found: Tensor, wanted: Tensor, share: float) -> None:
    """The error's size against the size of what is wanted."""
    assert found.shape == wanted.shape
    error = (found.cpu().float() - wanted.float()).norm() / wanted.float().norm()
    assert error < share, f"relative error {error:.2e}"


def test_rows_that_lie_apart_are_added_and_normed() -> None:
    ours, theirs, weight = on_device(FP32), exact(), noise(96, seed=1)
    wide, more = noise(3, 128, seed=2), noise(3, 160, seed=3)
    stream, delta = wide[:, :96].clone(), more[:, :96].clone()
    apart = wide.to(ours.device)[:, :96]
    normed = ours.add_norm(apart, more.to(ours.device)[:, :96], 0.5, weight.to(ours.device), 1e-5)
    torch.testing.assert_close(normed.cpu(), theirs.add_norm(stream, delta, 0.5, weight, 1e-5))
    torch.testing.assert_close(apart.cpu(), stream)


HEADS = {
    "plain": {},
    "one key head": {"heads": 5, "kv_heads": 1},
    "as many key heads": {"heads": 3, "kv_heads": 3},
    "twelve to one": {"heads": 24, "kv_heads": 2, "head_dim": 32},
    "forty to one": {"heads": 40, "kv_heads": 1, "head_dim": 16},
    "wide heads": {"head_dim": 128},
    "wider heads": {"head_dim": 256},
    "odd heads": {"head_dim": 80},
    "small heads": {"head_dim": 24},
    "normed": {"head_norm": "head"},
    "normed at once": {"head_norm": "width"},
    "partly turned": {"rope_dims": 16},
}
WHOLE, WINDOW, CAPPED = (
    AttentionSpec(None, 0.2, None),
    AttentionSpec(20, 0.2, None),
    AttentionSpec(5, 0.2, 3.0),
)
PASSES = [
    (Span([0] * 50, 0, range(4, 9), 0), Span([0] * 7, 0, (20,), 0), Span([0] * 7, 0, (21,), 0)),
    (
        Span([0], 50, range(4, 9), 0),
        Span([0] * 40, 7, (20, 3, 2), 0),
        Span([0], 0, (1,), 0),
        Span([0] * 2, 7, (21, 22), 0),
    ),
    (Span([0], 51, range(4, 9), 0), Span([0], 47, (20, 3, 2), 0)),
]


def attended(
    ops: TorchOps, sight: AttentionSpec, cache_type: CacheType = "auto", cache: Any = None
) -> list[Tensor]:
    """What each pass gives: prompts, then chunks beside single rows, then single rows alone."""
    cache = cache or ops.new_cache(ops.config, 32, cache_type)[0]
    turn, results = _turn(ops), []
    for number, spans in enumerate(PASSES):
        batch = ops.place(pack(spans, BLOCK_TOKENS))
        width = ops.config.q_width + 2 * ops.config.kv_width
        qkv = noise(len(batch.tokens), width, seed=number).to(BF16).to(ops.device, ops.dtype)
        plan = ops.plan(batch)
        results.append(ops.attend(ops.store(qkv, turn, cache, plan, 1e-5), cache, plan, sight))
    return results


def _turn(ops: Ops) -> QueryKeySpec:
    config = ops.config  # type: ignore[attr-defined]
    cosines, sines = (one.to(ops.device) for one in rope_tables(config.layers[0].rope, CONTEXT))
    if config.head_norm == "none":
        return QueryKeySpec(cosines, sines, "none", None, None)
    whole = config.head_norm == "width"
    q_norm = noise(config.q_width if whole else config.head_dim, seed=8).to(ops.device)
    k_norm = noise(config.kv_width if whole else config.head_dim, seed=9).to(ops.device)
    return QueryKeySpec(cosines, sines, config.head_norm, q_norm, k_norm)


@pytest.mark.parametrize("changes", HEADS.values(), ids=HEADS)
def test_attention_equals_plain_torch(changes: dict[str, object]) -> None:
    wanted = attended(exact(**changes), CAPPED)
    for found, each in zip(attended(on_device(FP32, **changes), CAPPED), wanted, strict=True):
        torch.testing.assert_close(found.cpu(), each, **CLOSE)


@pytest.mark.parametrize("sight", [WHOLE, WINDOW], ids=["all", "window"])
def test_a_window_hides_what_lies_before_it(sight: AttentionSpec) -> None:
    for found, each in zip(attended(on_device(FP32), sight), attended(exact(), sight), strict=True):
        torch.testing.assert_close(found.cpu(), each, **CLOSE)


def test_an_int8_cache_is_read_as_plain_torch_reads_it() -> None:
    """On the same device: a GPU divides by way of a reciprocal, and where a number lies between
    two whole ones it may take the other."""
    plain = CudaOps(decoder_config(), FP32, BLOCK_TOKENS, DEVICE, None)
    wanted = attended(plain, WINDOW, "int8")
    for found, each in zip(attended(on_device(FP32), WINDOW, "int8"), wanted, strict=True):
        torch.testing.assert_close(found, each, **CLOSE)


def test_a_long_context_is_split_and_joined() -> None:
    tokens = 16 * 64 + 5  # more than one tile of keys for some of the programs
    blocks = range(-(-tokens // BLOCK_TOKENS))
    results = []
    for ops in (on_device(FP32, heads=2, kv_heads=1), exact(heads=2, kv_heads=1)):
        cache = ops.new_cache(ops.config, len(blocks), "auto")[0]
        for number, numbers in enumerate(cache.tensors):
            numbers.copy_(noise(*numbers.shape, seed=number))
        batch = ops.place(pack((Span([0], tokens - 1, blocks, 0),), BLOCK_TOKENS))
        queries = noise(1, ops.config.q_width, seed=5).to(ops.device)
        results.append(ops.attend(queries, cache, ops.plan(batch), WHOLE).cpu())
    torch.testing.assert_close(*results, **CLOSE)


def test_a_row_is_attended_to_alike_in_any_company() -> None:
    ops = on_device(BF16)
    cache = ops.new_cache(ops.config, 32, "auto")[0]
    for numbers in cache.tensors:
        numbers.copy_(noise(*numbers.shape))
    spans = Span([0], 70, range(5), 0), Span([0], 3, (9,), 0), Span([0] * 9, 20, (12, 13), 0)
    together = pack(spans, BLOCK_TOKENS)
    queries = noise(len(together.tokens), ops.config.q_width, seed=5).to(DEVICE, BF16)
    found = _attend(ops, queries, cache, together)
    assert torch.equal(_attend(ops, queries[:1], cache, pack(spans[:1], BLOCK_TOKENS)), found[:1])
    assert torch.equal(_attend(ops, queries[2:], cache, pack(spans[2:], BLOCK_TOKENS)), found[2:])


def _attend(ops: CudaOps, queries: Tensor, cache: object, batch: ForwardBatch) -> Tensor:
    plan = ops.plan(ops.place(batch))
    return ops.attend(queries, cache, plan, WHOLE)  # type: ignore[arg-type]


def test_what_no_sequence_has_written_is_never_read() -> None:
    ops = on_device(FP32)
    cache = ops.new_cache(ops.config, 32, "auto")
    for numbers in cache[0].tensors:
        numbers.fill_(torch.nan)
    found = attended(ops, WINDOW, cache=cache[0])
    for each, wanted in zip(found, attended(exact(), WINDOW), strict=True):
        torch.testing.assert_close(each.cpu(), wanted, **CLOSE)


def _exact_ops(config: DecoderConfig) -> CudaOps:
    return CudaOps(config, FP32, BLOCK_TOKENS, DEVICE, triton_kernels())


@pytest.mark.parametrize("count", [1, 16, 17, 33])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (96, 64), (161, 160), (1104, 96)])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("kernels", [True, False])
def test_a_linear_multiplies(
    precision: Precision, outputs: int, inputs: int, count: int, kernels: bool
) -> None:
    used = triton_kernels() if kernels else None
    ops = CudaOps(decoder_config(), BF16, BLOCK_TOKENS, DEVICE, used)
    weight, bias = noise(outputs, inputs), noise(outputs, seed=1)
    rows = noise(count, inputs, seed=2).to(BF16)
    known = {
        "bfloat16": lambda: weight.to(BF16).float(),
        "int8": lambda: restore(quantise_int8(weight)),
        "int4": lambda: restore(quantise_int4(weight)),
    }[precision]()
    whole = precision == "int8" and outputs % 8 == 0
    exact_rows = restore(quantise_int8(rows)) if whole else rows.float()
    linear = ops.pack([weight], bias, precision)
    found = linear(rows.to(DEVICE))
    assert found.dtype is BF16
    assert_near(found, exact_rows @ known.T + bias, 6e-3)
    wide = ops.pack([weight], None, precision, wide=True)
    assert_near(wide(rows.to(DEVICE)), exact_rows @ known.T, 6e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_whole_model_gives_the_logits_of_plain_torch(tmp_path: Path, variant: str) -> None:
    make_checkpoint(variant, tmp_path)
    tokens = prompt(1, 75)
    wanted = logits(load_decoder(tmp_path), Span(tokens, 0, range(8), 75))
    found = _in_chunks(load_decoder(tmp_path, make_ops=_exact_ops), tokens)
    torch.testing.assert_close(found.cpu(), wanted, **CLOSE)


@pytest.mark.parametrize("variant", ["llama-tied-biased", "gemma3", "mixtral"])
def test_a_whole_model_in_fewer_bits_is_close_to_float32(tmp_path: Path, variant: str) -> None:
    """Attention is left to plain torch where the kernels are interpreted, for the sake of time."""
    make_checkpoint(variant, tmp_path)
    tokens = prompt(1, 75)
    wanted = logits(load_decoder(tmp_path), Span(tokens, 0, range(8), 75))
    limits: dict[Precision, float] = {"bfloat16": 0.05, "int8": 0.08, "int4": 0.4}
    kernels = triton_kernels() if ON_GPU else None
    for precision, limit in limits.items():
        decoder = load_decoder(
            tmp_path,
            precision=precision,
            make_ops=lambda config: CudaOps(config, BF16, BLOCK_TOKENS, DEVICE, kernels),
        )
        assert_near(_in_chunks(decoder, tokens), wanted, limit)


def _in_chunks(decoder: Decoder, tokens: tuple[int, ...]) -> Tensor:
    cuts = [(0, 50), (50, 51), (51, 75)]
    return torch.cat([logits(decoder, Span(tokens[a:b], a, range(8), b - a)) for a, b in cuts])


def test_without_triton_plain_torch_attends_on_the_same_device() -> None:
    plain = CudaOps(decoder_config(), FP32, BLOCK_TOKENS, DEVICE, None)
    assert plain.name == "cuda, in plain torch"
    for found, each in zip(attended(plain, CAPPED), attended(exact(), CAPPED), strict=True):
        torch.testing.assert_close(found.cpu(), each, **CLOSE)


def test_nothing_is_recorded_where_the_host_has_a_say_in_the_middle_of_a_step() -> None:
    assert not CudaOps(decoder_config(), FP32, BLOCK_TOKENS, CPU, triton_kernels()).replays
    assert not CudaOps(decoder_config(), FP32, BLOCK_TOKENS, DEVICE, None).replays


COMPILE = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from backends.llm.kernels import (
    choose_tokens, fused_rows, packed_linear, paged_attention, rotate_store)

def compile(kernel, types, constants, capability):
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    options = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= 99 << 10, compiled.metadata.shared

WHOLE = {"query_stride": "i32", "bounds": "*i32", "positions": "*i64", "span_of": "*i32",
         "tables": "*i32", "table_stride": "i32", "scale": "fp32", "cap": "fp32",
         "key_scales": "*fp32", "value_scales": "*fp32"}
SHAPE = {"HEADS": 14, "KV_HEADS": 2, "HEAD_DIM": 80, "BLOCK_TOKENS": 16, "DIMS": 128}
SINGLE = dict.fromkeys(("partial", "peaks", "sums"), "*fp32")
for splits, number, where in ((16, "i8", SINGLE), (1, "bf16", dict.fromkeys(SINGLE, "*bf16"))):
    types = {**WHOLE, **where, "queries": "*bf16", "keys": f"*{number}", "values": f"*{number}"}
    scaled = number == "i8"
    constants = {**SHAPE, "SPLITS": splits, "QUERIES": 16 if splits > 1 else 64, "KEYS": 64,
                 "WINDOW": 20 * scaled, "CAPPED": scaled, "SCALED": scaled, "NUMBER": tl.bfloat16}
    compile(paged_attention._attend, types, constants, 80 if scaled else 90)
joined = {name: SHAPE[name] for name in ("HEADS", "HEAD_DIM", "DIMS")} | {"SPLITS": 16}
compile(paged_attention._join, {**SINGLE, "bounds": "*i32", "result": "*bf16"}, joined, 90)
types = {"rows": "*bf16", "weight": "*u8", "scales": "*fp32", "bias": "*fp32", "result": "*bf16",
         **dict.fromkeys(("count", "row_stride", "outputs"), "i32")}
constants = {"WIDTH": 448, "HALF": 16, "ROWS": 16, "OUTPUTS": 32, "BYTES": 64, "BIASED": True,
             "NUMBER": tl.bfloat16}
compile(packed_linear._multiply, types, constants, 80)
types = {"stream": "*fp32", "delta": "*bf16", "weight": "*fp32", "result": "*bf16",
         "stream_stride": "i32", "delta_stride": "i32", "scale": "fp32", "eps": "fp32"}
compile(fused_rows._add_norm, types, {"WIDTH": 896, "BLOCK": 1024, "ADDS": True}, 90)
types = {"rows": "*bf16", "row_stride": "i32", "result": "*bf16"}
for silu in (True, False):
    compile(fused_rows._gate, types, {"WIDTH": 4864, "BLOCK": 1024, "SILU": silu}, 80)
types = {**dict.fromkeys(("qkv", "queries", "keys", "values"), "*bf16"), "row_stride": "i32",
         **dict.fromkeys(("positions", "slots"), "*i64"), "eps": "fp32",
         **dict.fromkeys(("cosines", "sines", "q_norm", "k_norm"), "*fp32")}
constants = {"HEADS": 14, "KV_HEADS": 2, "HEAD_DIM": 80, "BLOCK_TOKENS": 16, "HALF": 20,
             "DIMS": 128, "TURNS": True, "NORMED": True}
compile(rotate_store._store, types, constants, 90)
types = {"logits": "*fp32", "row_stride": "i32", "tops": "*fp32", "firsts": "*i64",
         "wishes": "*fp64", "tokens": "*i64"}
compile(choose_tokens._choose, types, {"VOCABULARY": 151936, "BLOCK": 4096}, 90)
"""


def test_the_kernels_compile_for_gpus_that_are_not_there(tmp_path: Path) -> None:
    """The interpreter accepts more than the compiler does."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], cwd=ROOT, env=environment, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
