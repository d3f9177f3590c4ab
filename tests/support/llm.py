"""Tiny random checkpoints made with transformers, and decoders on them."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from backends.llm.config.decoder import DecoderConfig, LayerConfig, RopeConfig
from backends.llm.config.families import read_config
from backends.llm.model.decoder import Decoder
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import CacheType, Ops, Precision
from backends.llm.rows import pack
from backends.llm.runner import Runner
from backends.llm.span import Span
from backends.llm.tokens.tokeniser import Tokeniser
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.stream import load_weights
from schedulers.llm.engine.engine import Compile, Engine, Vocabulary
from schedulers.llm.generation import GenerateRequest, GenerationOutput
from schedulers.llm.policy.blocks import BlockPool
from schedulers.llm.policy.limits import EngineLimits
from schedulers.llm.policy.scheduler import SequenceScheduler

BLOCK_TOKENS = 16
CONTEXT = 256
SMALL = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [1.5 + 0.4 * i for i in range(8)],
    "original_max_position_embeddings": 32,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied-biased": (
        "Llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 32},
    ),
    "llama-llama3-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN}),
    "llama-linear": ("Llama", {"rope_parameters": {**YARN, "rope_type": "linear"}}),
    "mistral-window": ("Mistral", {"sliding_window": 24, "head_dim": 24}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "gemma": ("Gemma", {"head_dim": 32}),
    "gemma2": ("Gemma2", {"head_dim": 32, "sliding_window": 20, "query_pre_attn_scalar": 24}),
    "gemma3": ("Gemma3Text", {"head_dim": 32, "sliding_window": 20, "sliding_window_pattern": 2}),
    "phi3": ("Phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "phi3-longrope": ("Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 32}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.1,
            "logits_scaling": 3.0,
        },
    ),
    "olmo2": ("Olmo2", {}),
    "smollm3": ("SmolLM3", {"no_rope_layer_interval": 2, "tie_word_embeddings": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2-moe": (
        "Qwen2Moe",
        {**EXPERTS, "shared_expert_intermediate_size": 48, "mlp_only_layers": [0]},
    ),
    "qwen3-moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
}


def make_checkpoint(variant: str, folder: Path, **changes: Any) -> Any:
    """Save a random float32 model of a variant; the transformers model itself."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(sum(variant.encode()))
    name, differences = VARIANTS[variant]
    config = _named(transformers, f"{name}Config")(**{**SMALL, **differences, **changes})
    model_name = name.removesuffix("Text")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _named(transformers, f"{model_name}ForCausalLM")(config).eval()
        for parameter_name, parameter in model.named_parameters():
            spread = 0.3 if "norm" in parameter_name or "bias" in parameter_name else 0.08
            torch.nn.init.normal_(parameter, std=spread)
            if "norm" in parameter_name and "emma" not in name:
                parameter.data += 1.0
        model.generation_config.eos_token_id = 2
        model.save_pretrained(folder)
    return model


def _named(module: Any, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(module, name)
    return found


def load_decoder(
    folder: Path,
    *,
    blocks: int = 64,
    dtype: torch.dtype = torch.float32,
    precision: Precision = "float32",
    cache_type: CacheType = "auto",
    make_ops: Callable[[DecoderConfig], Ops] | None = None,
) -> Decoder:
    """A decoder in plain torch, unless `make_ops` says otherwise."""
    config = read_config(folder)
    ops = TorchOps(config, dtype, BLOCK_TOKENS) if make_ops is None else make_ops(config)
    with Checkpoint(folder) as checkpoint:
        weights = load_weights(checkpoint, config, ops, precision)
    return Decoder(config, weights, ops, CONTEXT, blocks, cache_type)


def decoder_config(**changes: Any) -> DecoderConfig:
    """One layer's worth of config; `rope_dims` is how many dimensions turn."""
    head_dim = changes.get("head_dim", 64)
    rope = RopeConfig("default", 1e4, changes.pop("rope_dims", head_dim))
    facts = {
        "family": "test",
        "vocabulary": 100,
        "hidden": 64,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": head_dim,
        "layers": (LayerConfig(96, None, rope),),
        "positions": CONTEXT,
        "eps": 1e-5,
    }
    return DecoderConfig(**(facts | changes))


def logits(decoder: Decoder, *spans: Span) -> torch.Tensor:
    return decoder.forward(pack(spans, decoder.ops.block_tokens))


@cache
def prompt(seed: int, length: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, SMALL["vocab_size"], (length,), generator=generator).tolist())


def byte_tokeniser() -> Tokeniser:
    """One token per byte, as many as a small model's vocabulary has."""
    return Tokeniser(_byte_tokenizer())


def _byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: SMALL["vocab_size"]]
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_engine(
    decoder: Decoder, blocks: int = 64, compile: Compile | None = None, **limits: int
) -> Engine:
    """An engine on a decoder that was made with as many blocks."""
    settings = {"step_tokens": 32, "running": 8, "context": CONTEXT} | limits
    pool = BlockPool(blocks, decoder.ops.block_tokens)
    vocabulary = Vocabulary(byte_tokeniser(), decoder.config.vocabulary, decoder.config.end_ids)
    return Engine(
        SequenceScheduler(EngineLimits(**settings), pool), Runner(decoder), vocabulary, compile
    )


def answers(engine: Engine, *requests: GenerateRequest) -> dict[str, list[GenerationOutput]]:
    """Submit all and step until nothing is left; every output by request."""
    for request in requests:
        engine.submit(request, 0.0)
    heard: dict[str, list[GenerationOutput]] = {request.id: [] for request in requests}
    for _ in range(10_000):
        if not engine.busy:
            return heard
        for output in engine.step(0.0):
            heard[output.id].append(output)
    raise AssertionError("the engine never came to an end")


def tokens_of(outputs: list[GenerationOutput]) -> list[int]:
    return [output.token for output in outputs if output.token is not None]


def save_tokeniser(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(_byte_tokenizer().to_str())
