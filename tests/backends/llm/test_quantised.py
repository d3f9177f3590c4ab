"""Fewer bits in plain torch: weights, activations, keys and values; how far they stray."""

from pathlib import Path

import pytest
import torch

from backends.llm.config.decoder import DecoderConfig
from backends.llm.kernels.compile import SETS, cpu_flags
from backends.llm.load import LoadSettings, load
from backends.llm.memory import MemoryLayout, linear_bytes
from backends.llm.ops.choose import choose_ops
from backends.llm.ops.cuda_linears import make_linear as cuda_linear
from backends.llm.ops.linears import make_linear
from backends.llm.ops.quantise import quantise_int4, quantise_int8, restore
from backends.llm.ops.seam import CacheType, Precision
from backends.llm.span import Span
from support.llm import (
    decoder_config,
    load_decoder,
    logits,
    make_checkpoint,
    prompt,
    save_tokeniser,
)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def stray(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found.float() - wanted).norm() / wanted.norm()).item()


def test_int8_keeps_a_weight_to_half_a_step() -> None:
    weight = noise(40, 96)
    quantised = quantise_int8(weight)
    assert (restore(quantised) - weight).abs().max() <= quantised.scales.max() / 2 + 1e-6


def test_int4_uses_all_its_levels_and_beats_plain_rounding() -> None:
    weight = noise(64, 128)
    quantised = quantise_int4(weight)
    assert quantised.values.min() == -8
    groups = weight.view(64, 4, 32)
    scales = groups.abs().amax(2, keepdim=True) / 7
    plain = ((groups / scales).round() * scales).view(64, 128)
    assert stray(restore(quantised), weight) < 0.9 * stray(plain, weight)


@pytest.mark.parametrize("quantise", [quantise_int8, quantise_int4])
def test_a_weight_of_zeros_stays_zero(quantise: object) -> None:
    weight = torch.zeros(16, 64)
    assert torch.equal(restore(quantise(weight)), weight)  # type: ignore[operator]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_in_plain_torch_strays_as_far_as_its_bits(
    precision: Precision, dtype: torch.dtype
) -> None:
    weight, bias, x = noise(72, 96), noise(72, seed=1), noise(9, 96, seed=2)
    limits = {"float32": 1e-2, "bfloat16": 1e-2, "int8": 2e-2, "int4": 0.12}
    linear = make_linear(weight, bias, precision, dtype, False)
    found = linear(x.to(dtype))
    assert found.dtype is dtype
    assert stray(found, x @ weight.T + bias) < limits[precision]
    layout = MemoryLayout(precision, "auto", dtype.itemsize, 16)
    assert linear.bytes <= linear_bytes(80 if precision == "int4" else 72, 96, layout)


def test_int4_takes_int8_where_inputs_fill_no_group() -> None:
    weight, x = noise(32, 40), noise(3, 40, seed=1)
    linear = make_linear(weight, None, "int4", torch.float32, False)
    assert stray(linear(x), x @ weight.T) < 2e-2


@pytest.mark.parametrize(
    ("precision", "cache_type", "limit"),
    [("int8", "auto", 0.05), ("int4", "auto", 0.35), ("float32", "int8", 0.02)],
)
def test_a_whole_model_in_fewer_bits(
    tmp_path: Path, precision: Precision, cache_type: CacheType, limit: float
) -> None:
    make_checkpoint("qwen2", tmp_path)
    tokens = prompt(1, 75)
    wanted = logits(load_decoder(tmp_path), Span(tokens, 0, range(8), 75))
    decoder = load_decoder(tmp_path, precision=precision, cache_type=cache_type)
    parts = [(0, 50), (50, 51), (51, 75)]
    found = [logits(decoder, Span(tokens[a:b], a, range(8), b - a)) for a, b in parts]
    assert stray(torch.cat(found), wanted) < limit


def test_an_int8_cache_holds_twice_the_tokens(tmp_path: Path) -> None:
    make_checkpoint("qwen3", tmp_path)
    save_tokeniser(tmp_path)
    plans = [
        load(tmp_path, LoadSettings(16 << 20, "float32", kind, step_tokens=32)).plan
        for kind in ("auto", "int8")
    ]
    assert plans[1].blocks > 3 * plans[0].blocks


def _config(**changes: object) -> DecoderConfig:
    return decoder_config(**changes)


def test_what_the_kernels_cannot_run_is_left_to_torch_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert choose_ops(_config(hidden=72), "int8", "auto", 16).name == "torch"
    (line,) = caplog.messages
    assert "plain torch, which is slower: hidden_size 72 is not a multiple of 32" in line


def test_without_a_compiler_torch_computes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not any(one.needed <= cpu_flags() for one in SETS):
        pytest.skip("this CPU lacks the instructions anyway")
    from backends.llm.kernels.library import kernels

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.cache_clear()
    try:
        assert choose_ops(_config(), "int8", "auto", 16).name == "torch"
    finally:
        kernels.cache_clear()
    assert "there is no g++ on PATH" in caplog.text


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("make", ["cpu", "cuda"])
def test_a_row_that_is_not_numbers_gives_none_and_spoils_no_other(
    make: str, precision: Precision, wrong: float
) -> None:
    """The layouts for a GPU are computed on the CPU here, without Triton."""
    weight, bias, x = noise(64, 96), noise(64, seed=1), noise(7, 96, seed=2)
    if make == "cuda":
        cpu = torch.device("cpu")
        linear = cuda_linear(weight, bias, precision, x.dtype, False, cpu, multiply=None)
    else:
        linear = make_linear(weight, bias, precision, torch.float32, False)
    wanted = linear(x)
    x[3, 5] = wrong
    found = linear(x)
    others = [0, 1, 2, 4, 5, 6]
    assert not found[3].isfinite().any()
    assert torch.equal(found[others], wanted[others])
