"""AWQ: inputs that matter are multiplied before rounding, and what gives them is divided.

Lin, Tang and others 2023. The factor of an input is its mean size to a power, which is searched
for the least squared error of the outputs; the division goes into the norm or the linear before.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jobs.tools.quantise_llm.moments import InputMoments
from jobs.tools.quantise_llm.rounding import round_to_nearest

POWERS = tuple(step / 20 for step in range(20))


def scale_layer(layer: Any, moments: dict[str, InputMoments], bits: int) -> dict[str, float]:
    """Scale a decoder's layer in place, computing the same; the power chosen, by first linear."""
    chosen = {}
    for before, names in _pairs(layer):
        linears = [_linear(layer, name) for name in names]
        power, factors = best_factors([one.weight for one in linears], moments[names[0]], bits)
        chosen[names[0]] = power
        _fold(before, linears, factors)
    return chosen


def best_factors(
    weights: Sequence[Tensor], moments: InputMoments, bits: int
) -> tuple[float, Tensor]:
    """The power, and the factor of each input, with the least error over all these weights."""
    best, found = float("inf"), (0.0, torch.ones(len(moments.size)))
    size = moments.size.clamp_min(1e-4)
    for power in POWERS:
        factors = size**power
        factors = factors / (factors.max() * factors.min()).sqrt()
        error = sum(_error(weight.detach(), factors, moments.square, bits) for weight in weights)
        if error < best:
            best, found = error, (power, factors)
    return found


def _error(weight: Tensor, factors: Tensor, square: Tensor, bits: int) -> float:
    """Mean squared error of the outputs: the trace of D square Dᵀ for the weights' difference D."""
    lost = round_to_nearest(weight * factors, bits).restored() / factors - weight
    return float(((lost @ square) * lost).sum())


def _pairs(layer: Any) -> list[tuple[nn.Module, list[str]]]:
    """What gives inputs, and the linears that take them; only where both can be scaled."""
    pairs: list[tuple[nn.Module, list[str]]] = []
    if hasattr(layer, "input_layernorm"):
        pairs.append((layer.input_layernorm, [f"self_attn.{name}_proj" for name in "qkv"]))
        pairs.append((layer.post_attention_layernorm, ["mlp.gate_proj", "mlp.up_proj"]))
    values, output = layer.self_attn.v_proj, layer.self_attn.o_proj
    if values.out_features == output.in_features:
        pairs.append((values, ["self_attn.o_proj"]))
    pairs.append((layer.mlp.up_proj, ["mlp.down_proj"]))
    return pairs


def _fold(before: Any, linears: Sequence[nn.Linear], factors: Tensor) -> None:
    with torch.no_grad():
        for linear in linears:
            linear.weight.mul_(factors)
        if isinstance(before, nn.Linear):
            before.weight.div_(factors[:, None])
            if before.bias is not None:
                before.bias.div_(factors)
        else:
            before.weight.div_(factors)


def _linear(layer: nn.Module, name: str) -> nn.Linear:
    found = layer.get_submodule(name)
    assert isinstance(found, nn.Linear)
    return found
