"""Checkpoints whose weights are stored in 8 or 4 bits are served as what they stand for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.llm.config.families import read_config
from backends.llm.errors import BadCheckpoint
from backends.llm.ops.compiled_linears import CompiledInt4
from backends.llm.ops.linears import Int4Linear, Int8Linear
from backends.llm.ops.quantise import QuantisedTensor, joined, quantise_int4, quantise_int8
from backends.llm.ops.seam import Precision
from backends.llm.span import Span
from backends.llm.weights.expected_tensors import expected_tensors
from backends.llm.weights.headers import hold_against, read_headers
from backends.llm.weights.stored_weights import as_stored
from support.llm import load_decoder, logits, make_checkpoint, prompt
from support.stored_weights import store

SPAN = Span(prompt(1, 20), 0, range(2), 20)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    make_checkpoint("llama", folder)
    return folder


def restored(folder: Path, into: Path, bits: int, **scheme: Any) -> tuple[Path, Path]:
    """The checkpoint stored in fewer bits, and one with the numbers that these stand for."""
    packed, plain = into / "packed", into / "plain"
    numbers = store(folder, packed, bits, **scheme)
    plain.mkdir()
    for one in folder.iterdir():
        (plain / one.name).write_bytes(one.read_bytes())
    save_file(load_file(folder / "model.safetensors") | numbers, plain / "model.safetensors")
    return packed, plain


@pytest.mark.parametrize("scheme", [{"bits": 4}, {"bits": 8}, {"bits": 8, "whole": True}])
def test_stored_weights_give_the_logits_of_the_numbers_they_stand_for(
    scheme: dict[str, Any], original: Path, tmp_path: Path
) -> None:
    packed, plain = restored(original, tmp_path, **scheme)
    found = logits(load_decoder(packed), SPAN)
    torch.testing.assert_close(found, logits(load_decoder(plain), SPAN), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["int4", "int8", "bfloat16"])
def test_they_are_served_at_every_precision(
    precision: Precision, original: Path, tmp_path: Path
) -> None:
    packed, plain = restored(original, tmp_path, 4)
    found = logits(load_decoder(packed, precision=precision), SPAN)
    wanted = logits(load_decoder(plain, precision="float32"), SPAN)
    assert torch.nn.functional.cosine_similarity(found.flatten(), wanted.flatten(), 0) > 0.97


def test_the_bits_that_are_wanted_stay_as_they_are_stored() -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.randint(-5, 6, (16, 64), generator=draw, dtype=torch.int8)
    stored = QuantisedTensor(values, torch.rand(16, 2, generator=draw) + 0.1)
    assert quantise_int4(stored) is stored
    whole = QuantisedTensor(values, torch.ones(16, 1))
    assert quantise_int8(whole) is whole
    assert quantise_int8(stored).scales.shape == (16, 1)


@pytest.mark.parametrize("make", [Int4Linear, Int8Linear])
def test_a_stored_linear_multiplies_as_the_numbers_do(make: Callable[..., Any]) -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(32, 64, generator=draw)
    stored = quantise_int4(weight) if make is Int4Linear else quantise_int8(weight)
    rows = torch.randn(3, 64, generator=draw)
    found = make(stored, None, torch.float32)(rows)
    torch.testing.assert_close(found, make(weight, None, torch.float32)(rows))


def test_stored_linears_are_joined_without_rounding_again() -> None:
    parts = [quantise_int4(torch.randn(8, 64)) for _ in range(2)]
    both = joined(parts)
    assert isinstance(both, QuantisedTensor)
    assert torch.equal(both.values, torch.cat([one.values for one in parts]))
    mixed = joined([parts[0], torch.zeros(8, 64)])
    assert isinstance(mixed, torch.Tensor)


def test_the_checker_holds_stored_tensors_against_the_config(
    original: Path, tmp_path: Path
) -> None:
    packed, _ = restored(original, tmp_path, 4)
    headers = read_headers(packed)
    hold_against(headers, expected_tensors(read_config(packed), headers))
    tensors = load_file(packed / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight_scale"
    save_file(tensors | {name: tensors[name][:, :1].clone()}, packed / "model.safetensors")
    headers = read_headers(packed)
    with pytest.raises(BadCheckpoint, match=r"down_proj.weight_scale' has shape .* makes it"):
        hold_against(headers, expected_tensors(read_config(packed), headers))


def four_bits(activations: Any = None, **weights: Any) -> dict[str, Any]:
    plain = {"num_bits": 4, "strategy": "group", "group_size": 32}
    return {"config_groups": {"a": {"weights": plain | weights, "input_activations": activations}}}


REFUSED = {
    "columns in another order": (
        four_bits(actorder="group"), "'actorder' is 'group'; it must be null or one of weight",
    ),
    "columns in order of activations": (four_bits(actorder=True), "'actorder' is True"),
    "ranges of activations that are stored": (
        four_bits({"num_bits": 8, "dynamic": False}), "'dynamic' is False; it must be true",
    ),
    "rotated weights": ({"transform_config": {"u": {}}}, "'transform_config' is {'u': {}}"),
    "another method": ({"quant_method": "gptq"}, "only 'compressed-tensors' is read"),
    "another format": ({"format": "marlin-24"}, "'format' is 'marlin-24'; it must be one of"),
    "groups of 128": (
        {"config_groups": {"a": {"weights": {"num_bits": 4, "strategy": "group",
                                             "group_size": 128}}}},
        "4 with the strategy 'group' and group_size 32",
    ),
    "zero points": (
        {"config_groups": {"a": {"weights": {"num_bits": 4, "symmetric": False}}}},
        "'symmetric' is False; it must be true",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_engine_does_not_compute_with_is_refused(
    case: str, original: Path, tmp_path: Path
) -> None:
    changes, reason = REFUSED[case]
    packed, _ = restored(original, tmp_path, 4)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= changes
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint) as refused:
        read_config(packed)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [four_bits(actorder="static"), four_bits({"dynamic": True}), {"transform_config": {}}],
    ids=["order", "activations", "transform"],
)
def test_fields_that_change_no_stored_number_are_read(
    changes: dict[str, Any], original: Path, tmp_path: Path
) -> None:
    packed, _ = restored(original, tmp_path, 4)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] |= changes
    (packed / "config.json").write_text(json.dumps(config))
    read_config(packed)


def test_columns_with_a_group_number_each_are_refused() -> None:
    shapes = {"w_packed": (8, 8), "w_scale": (8, 2), "w_g_idx": (64,)}
    with pytest.raises(BadCheckpoint, match="the checkpoint has 'w_g_idx'"):
        list(as_stored("w", (8, 64), shapes))


def test_our_kernel_takes_stored_weights_as_they_are() -> None:
    pytest.importorskip("backends.llm.kernels.library")
    from backends.llm.errors import NoKernels
    from backends.llm.kernels.library import kernels

    try:
        kernels()
    except NoKernels as error:
        pytest.skip(str(error))
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    rows = torch.randn(3, 64).to(torch.bfloat16)
    found = CompiledInt4([quantise_int4(weight)], None, True)(rows)
    assert torch.equal(found, CompiledInt4([weight], None, True)(rows))
