"""Which architectures are known, and how each one's config.json becomes a DecoderConfig.

A checkpoint's own Python (`auto_map`) is never looked at.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.llm.config.architectures import refuse_other_tasks
from backends.llm.config.decoder import (
    Activation,
    DecoderConfig,
    ExpertsConfig,
    LayerConfig,
    RopeConfig,
)
from backends.llm.config.encoder import ENCODERS
from backends.llm.config.fields import ConfigFields, read_fields
from backends.llm.config.rope import read_rope
from backends.llm.config.stored_bits import check_stored_bits
from backends.llm.errors import BadCheckpoint, UnknownFamily

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu": "gelu",
}
MAX_LAYERS = 1024
MAX_EXPERTS = 4096
LAYER_TYPES = ("full_attention", "sliding_attention")
DTYPES = ("float32", "bfloat16", "float16")


def read_config(folder: Path) -> DecoderConfig:
    """The decoder a checkpoint folder describes.

    Raises UnknownFamily, or BadCheckpoint naming the field that is missing or wrong.
    """
    fields = read_fields(folder / "config.json")
    refuse_other_tasks(fields)
    family = fields.text("model_type")
    if family not in FAMILIES:
        raise UnknownFamily(
            f"config.json: model_type '{family}' is not supported; supported are "
            f"{', '.join(sorted(FAMILIES))}; and to embed, {', '.join(sorted(ENCODERS))}"
        )
    check_stored_bits(fields)
    text = fields.within("text_config") if family == "gemma3" else fields
    config = FAMILIES[family](fields if text is None else text)
    end_ids = tuple(end for end in _end_ids(folder, fields) if 0 <= end < config.vocabulary)
    return replace(config, family=family, end_ids=end_ids)


def _end_ids(folder: Path, fields: ConfigFields) -> tuple[int, ...]:
    """As written; a token that the model does not know can never come."""
    found = fields.whole_numbers("eos_token_id")
    if (folder / "generation_config.json").is_file():
        found += read_fields(folder / "generation_config.json").whole_numbers("eos_token_id")
    return tuple(dict.fromkeys(found))


def _decoder(
    fields: ConfigFields, layers: tuple[LayerConfig, ...], **differences: Any
) -> DecoderConfig:
    """What all families share, read from `fields`; `differences` are the family's own."""
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.refuse("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    head_dim = _head_dim(fields)
    shared: dict[str, Any] = {
        "family": "",
        "vocabulary": fields.count("vocab_size"),
        "hidden": fields.count("hidden_size"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "layers": layers,
        "positions": fields.count("max_position_embeddings"),
        "eps": fields.number("rms_norm_eps", 1e-6),
        "activation": _activation(fields),
        "attention_scale": head_dim**-0.5,
        "tied": fields.flag("tie_word_embeddings", False),
        "dtype": _dtype(fields),
    }
    return DecoderConfig(**(shared | differences))


def _head_dim(fields: ConfigFields) -> int:
    heads, hidden = fields.count("num_attention_heads"), fields.count("hidden_size")
    head_dim = fields.count("head_dim", max(hidden // heads, 1))
    if head_dim % 2:
        raise fields.refuse("head_dim", "even: rotary positions turn dimensions in pairs")
    return head_dim


def _activation(fields: ConfigFields) -> Activation:
    name = fields.text("hidden_activation", fields.text("hidden_act", "silu"))
    if name not in ACTIVATIONS:
        wanted = f"one of {', '.join(ACTIVATIONS)}"
        raise BadCheckpoint(f"{fields.source}: the activation is '{name}'; it must be {wanted}")
    return ACTIVATIONS[name]


def _dtype(fields: ConfigFields) -> str:
    name = fields.text("dtype", fields.text("torch_dtype", "bfloat16"))
    if name not in DTYPES:
        raise fields.refuse("dtype", f"one of {', '.join(DTYPES)}")
    return name


def _rope(fields: ConfigFields, layer_type: str = "", theta: float = 10_000.0) -> RopeConfig:
    positions = fields.count("max_position_embeddings")
    return read_rope(fields, _head_dim(fields), positions, layer_type, theta)


def _layer_count(fields: ConfigFields) -> int:
    """Bounded, because every layer has its place in the config from the beginning."""
    return fields.count("num_hidden_layers", most=MAX_LAYERS)


def _uniform(
    fields: ConfigFields, window: int | None, theta: float = 10_000.0
) -> tuple[LayerConfig, ...]:
    """Layers that are all alike."""
    layer = LayerConfig(fields.count("intermediate_size"), window, _rope(fields, theta=theta))
    return (layer,) * _layer_count(fields)


def _window(fields: ConfigFields) -> int | None:
    return None if fields.values.get("sliding_window") is None else fields.count("sliding_window")


def _by_type(
    fields: ConfigFields, default: Callable[[int], bool], window: int | None
) -> tuple[LayerConfig, ...]:
    """Layers of which some see a window; `default` says which when `layer_types` does not."""
    count = _layer_count(fields)
    types = fields.texts("layer_types", count)
    if unknown := set(types or ()).difference(LAYER_TYPES):
        raise fields.refuse("layer_types", f"made of {', '.join(LAYER_TYPES)}; not {min(unknown)}")
    sliding = [
        default(index) if types is None else types[index] == "sliding_attention"
        for index in range(count)
    ]
    full = LayerConfig(fields.count("intermediate_size"), None, _rope(fields, "full_attention"))
    local = replace(full, window=window, rope=_rope(fields, "sliding_attention"))
    return tuple(local if slides else full for slides in sliding)


def _llama(fields: ConfigFields) -> DecoderConfig:
    bias = fields.flag("attention_bias", False)
    return _decoder(
        fields,
        _uniform(fields, None),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _smollm3(fields: ConfigFields) -> DecoderConfig:
    rotated = fields.whole_numbers("no_rope_layers")
    interval = fields.count("no_rope_layer_interval", 4)
    layers = tuple(
        layer
        if (rotated[index] if rotated else (index + 1) % interval)
        else replace(layer, rope=None)
        for index, layer in enumerate(_uniform(fields, None, theta=2_000_000.0))
    )
    if fields.flag("use_sliding_window", False):
        window = _window(fields)
        layers = tuple(one if one.rope else replace(one, window=window) for one in layers)
    return replace(_llama(fields), layers=layers, tied=fields.flag("tie_word_embeddings", True))


def _mistral(fields: ConfigFields) -> DecoderConfig:
    return _decoder(fields, _uniform(fields, _window(fields)))


def _qwen_layers(fields: ConfigFields) -> tuple[LayerConfig, ...]:
    window = _window(fields) if fields.flag("use_sliding_window", False) else None
    first = fields.values.get("max_window_layers") or 0
    return _by_type(fields, lambda index: window is not None and index >= first, window)


def _qwen2(fields: ConfigFields) -> DecoderConfig:
    return _decoder(fields, _qwen_layers(fields), qkv_bias=True)


def _qwen3(fields: ConfigFields) -> DecoderConfig:
    bias = fields.flag("attention_bias", False)
    layers = _qwen_layers(fields)
    return _decoder(fields, layers, head_norm="head", qkv_bias=bias, output_bias=bias)


def _gemma(fields: ConfigFields, **differences: Any) -> DecoderConfig:
    return _decoder(
        fields,
        differences.pop("layers", ()) or _uniform(fields, None),
        norm_offset=1.0,
        embedding_scale=fields.count("hidden_size") ** 0.5,
        tied=fields.flag("tie_word_embeddings", True),
        activation=_gemma_activation(fields),
        qkv_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        **differences,
    )


def _gemma_activation(fields: ConfigFields) -> Activation:
    """Gemma 1 says "gelu" in `hidden_act` and means the tanh approximation."""
    return "gelu_tanh" if fields.values.get("hidden_activation") is None else _activation(fields)


def _gemma2(fields: ConfigFields) -> DecoderConfig:
    return _gemma(
        fields,
        layers=_by_type(fields, lambda index: index % 2 == 0, _window(fields)),
        norm_place="around",
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        attention_cap=fields.optional_number("attn_logit_softcapping"),
        logit_cap=fields.optional_number("final_logit_softcapping"),
    )


def _gemma3(fields: ConfigFields) -> DecoderConfig:
    if fields.flag("use_bidirectional_attention", False):
        raise fields.refuse("use_bidirectional_attention", "false: text is generated forward")
    pattern = fields.count("sliding_window_pattern", 6)
    layers = _by_type(fields, lambda index: (index + 1) % pattern != 0, _window(fields))
    if fields.within("rope_parameters") is None:
        layers = _old_gemma3_rope(fields, layers)
    return replace(_gemma2(fields), layers=layers, head_norm="head")


def _old_gemma3_rope(
    fields: ConfigFields, layers: tuple[LayerConfig, ...]
) -> tuple[LayerConfig, ...]:
    """Before transformers 5 the scaling was meant for the layers that see everything."""
    full = _rope(fields, theta=1_000_000.0)
    local = RopeConfig("default", fields.number("rope_local_base_freq", 10_000.0), full.dims)
    return tuple(replace(one, rope=local if one.window else full) for one in layers)


def _phi3(fields: ConfigFields) -> DecoderConfig:
    return replace(_mistral(fields), fused=True)


def _granite(fields: ConfigFields) -> DecoderConfig:
    return replace(
        _llama(fields),
        embedding_scale=fields.number("embedding_multiplier", 1.0),
        residual_scale=fields.number("residual_multiplier", 1.0),
        attention_scale=fields.number("attention_multiplier", 1.0),
        logit_scale=1.0 / fields.number("logits_scaling", 1.0),
    )


def _olmo2(fields: ConfigFields) -> DecoderConfig:
    bias = fields.flag("attention_bias", False)
    layers = _uniform(fields, None)
    return _decoder(
        fields, layers, norm_place="after", head_norm="width", qkv_bias=bias, output_bias=bias
    )


def _mixtral(fields: ConfigFields) -> DecoderConfig:
    width = fields.count("intermediate_size")
    experts = ExpertsConfig(*_expert_counts(fields, "num_local_experts"), width, True)
    config = _mistral(fields)
    layers = tuple(replace(layer, experts=experts) for layer in config.layers)
    return replace(config, layers=layers, expert_names="mixtral")


def _expert_counts(fields: ConfigFields, name: str) -> tuple[int, int]:
    """How many there are, and how many of them see a token."""
    count = fields.count(name, most=MAX_EXPERTS)
    return count, fields.count("num_experts_per_tok", most=count)


def _qwen_experts(config: DecoderConfig, fields: ConfigFields, shared_width: int) -> DecoderConfig:
    written = "num_local_experts" if "num_local_experts" in fields.values else "num_experts"
    experts = ExpertsConfig(
        *_expert_counts(fields, written),
        fields.count("moe_intermediate_size"),
        fields.flag("norm_topk_prob", False),
        shared_width,
    )
    dense = set(fields.whole_numbers("mlp_only_layers"))
    every = fields.count("decoder_sparse_step", 1)
    layers = tuple(
        layer if index in dense or (index + 1) % every else replace(layer, experts=experts)
        for index, layer in enumerate(config.layers)
    )
    return replace(config, layers=layers)


def _qwen2_moe(fields: ConfigFields) -> DecoderConfig:
    config = replace(_qwen2(fields), qkv_bias=fields.flag("qkv_bias", True))
    return _qwen_experts(config, fields, fields.count("shared_expert_intermediate_size"))


def _qwen3_moe(fields: ConfigFields) -> DecoderConfig:
    window = _window(fields) if fields.flag("use_sliding_window", False) else None
    config = replace(_qwen3(fields), layers=_uniform(fields, window))
    return _qwen_experts(config, fields, 0)


FAMILIES: dict[str, Callable[[ConfigFields], DecoderConfig]] = {
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "granite": _granite,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "smollm3": _smollm3,
}
