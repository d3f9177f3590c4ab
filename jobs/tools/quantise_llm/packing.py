"""Rounded weights as a checkpoint stores them: the format "pack-quantized" of compressed-tensors.

Whole numbers, made positive, lie in int32 words along the inputs, the first in the lowest bits.
vLLM and the engine read it.
"""

import torch
from torch import Tensor

from jobs.tools.quantise_llm.rounding import GROUP, Rounded

WORD_BITS = 32


def packed(name: str, rounded: Rounded, bits: int) -> dict[str, Tensor]:
    """The tensors that stand for `name`.weight."""
    outputs, inputs = rounded.values.shape
    per_word = WORD_BITS // bits
    whole = rounded.values.to(torch.int64) + (1 << (bits - 1))
    shifts = torch.arange(per_word) * bits
    words = (whole.view(outputs, inputs // per_word, per_word) << shifts).sum(2)
    return {
        f"{name}.weight_packed": words.to(torch.int32),
        f"{name}.weight_scale": rounded.scales.to(torch.bfloat16),
        f"{name}.weight_shape": torch.tensor([outputs, inputs]),
    }


def described(bits: int, ignored: list[str]) -> dict[str, object]:
    """The `quantization_config` of config.json; `ignored`: modules that stay as they are."""
    groups: dict[str, object] = (
        {"strategy": "group", "group_size": GROUP} if bits == 4 else {"strategy": "channel"}
    )
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, **groups}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ignored,
    }
