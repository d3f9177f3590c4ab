"""Checkpoints whose linears are stored in fewer bits, written by the tool's own packing."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from jobs.tools.quantise_llm.packing import described, packed
from jobs.tools.quantise_llm.rounding import round_to_nearest


def store(folder: Path, into: Path, bits: int, *, whole: bool = False) -> dict[str, torch.Tensor]:
    """Round every linear of the layers to nearest; the numbers that they then stand for.

    whole: as int8 under the weight's own name, rather than packed into words.
    """
    into.mkdir()
    tensors, numbers = {}, {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        rounded = round_to_nearest(tensor.float(), bits)
        numbers[name] = rounded.restored()
        if whole:
            tensors |= {name: rounded.values, f"{name}_scale": rounded.scales}
        else:
            tensors |= packed(name.removesuffix(".weight"), rounded, bits)
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    scheme = described(bits, ["lm_head"])
    if whole:
        scheme["format"] = "int-quantized"
    config = json.loads((folder / "config.json").read_text())
    (into / "config.json").write_text(json.dumps({**config, "quantization_config": scheme}))
    return numbers
