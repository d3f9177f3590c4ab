"""The random checkpoint every engine of `benchmarks.llm` runs, in the forms they want it.

`python -m benchmarks.llm_model SIZE FOLDER` writes `FOLDER/bf16`, a Hugging Face checkpoint, and
`FOLDER/w8a8`, the same in compressed-tensors' int8 for vLLM.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "1m": {
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4_096,
    },
    "100m": {
        "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 32_000,
    },
    "500m": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
    },
}  # fmt: skip
CONTEXT = 8192
PLAIN, W8A8 = "bf16", "w8a8"
_SCHEME = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True,
                        "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                  "symmetric": True, "dynamic": True},
        }
    },
}  # fmt: skip


def ensure(size: str, folder: Path) -> None:
    """Make what is missing, in a process of its own: torch stays out of the measuring one."""
    if not (folder / ".complete").is_file():
        print(f"making a random model of {size} parameters (once)", file=sys.stderr)
        command = [sys.executable, "-m", "benchmarks.llm_model", size, str(folder)]
        subprocess.run(command, check=True, timeout=1800)


def main() -> None:
    size, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / PLAIN).mkdir(parents=True)
    _make(SIZES[size], folder / PLAIN)
    _compress(folder / PLAIN, folder / W8A8)
    (folder / ".complete").write_text(size)


def _make(shape: dict[str, Any], folder: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        **shape, max_position_embeddings=CONTEXT, tie_word_embeddings=True, eos_token_id=0,
        bos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    with torch.device("cpu"):
        model: Any = transformers.Qwen2ForCausalLM(config)
        model = model.to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder)
    save_tokenizer(shape["vocab_size"], folder)


def save_tokenizer(vocabulary: int, folder: Path) -> None:
    """A word for every token, so that every answer has text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {"<|end|>": 0, **{f" w{token}": token for token in range(1, vocabulary)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<|end|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
             "pad_token": "<|end|>", "model_max_length": CONTEXT}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def _compress(plain: Path, folder: Path) -> None:
    """Int8 per output channel; activations are quantised by whoever runs it, per token."""
    import torch
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    tensors: dict[str, Any] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            scale = tensor.float().abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
            tensors[name] = (tensor.float() / scale).round().to(torch.int8)
            tensors[name + "_scale"] = scale.to(torch.bfloat16)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for each in plain.iterdir():
        if each.suffix == ".json" and each.name != "config.json":
            shutil.copy(each, folder)
    config = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": _SCHEME}))


if __name__ == "__main__":
    main()
