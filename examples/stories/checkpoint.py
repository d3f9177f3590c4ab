"""Writes a trained network as a Hugging Face checkpoint: what any runtime, ours too, can load."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from examples.stories.network import Network, Shape
from examples.stories.tokens import BEGIN, BEGIN_ID, CHAT_TEMPLATE, END, END_ID


def save(network: Network, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, weights (bfloat16), tokenizer, chat template and generation defaults."""
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in network.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "config.json", _config(network.shape))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "pad_token": END,
            "model_max_length": network.shape.positions,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write(
        folder / "generation_config.json",
        {"bos_token_id": BEGIN_ID, "eos_token_id": END_ID, "do_sample": True, "temperature": 0.7},
    )


def _config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
