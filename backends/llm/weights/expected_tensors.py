"""The tensors a decoder's checkpoint must have: names and shapes, from its config alone; no torch.

What `backends.llm.weights.stream` will ask for, so that a checkpoint without them is refused
unread.
"""

from collections.abc import Iterator
from typing import Protocol

from backends.llm.config.decoder import DecoderConfig, LayerConfig
from backends.llm.errors import BadCheckpoint

PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
"""Where a checkpoint may keep its decoder; the second and third are Gemma 3 with vision."""
HEADS = ("lm_head.weight", "language_model.lm_head.weight")

NORMS: dict[str, tuple[str | None, str | None, str | None, str | None]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "around": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}
"""Before and after attention, before and after the feed-forward part, by `norm_place`."""

Wanted = tuple[str, tuple[int, ...]]


class TensorNames(Protocol):
    """The names of a checkpoint's tensors."""

    def __contains__(self, name: str, /) -> bool: ...


def find_prefix(names: TensorNames) -> str:
    """Where the decoder's tensors are. Raises BadCheckpoint."""
    for prefix in PREFIXES:
        if f"{prefix}embed_tokens.weight" in names:
            return prefix
    tried = ", ".join(f"'{prefix}embed_tokens.weight'" for prefix in PREFIXES)
    raise BadCheckpoint(f"the checkpoint has no embedding table; looked for {tried}")


def expected_tensors(
    config: DecoderConfig, names: TensorNames, *, head: bool = True
) -> Iterator[Wanted]:
    """Every tensor that will be read from a checkpoint with these names. Raises BadCheckpoint."""
    prefix = find_prefix(names)
    table = (config.vocabulary, config.hidden)
    yield f"{prefix}embed_tokens.weight", table
    yield f"{prefix}norm.weight", (config.hidden,)
    for index, layer in enumerate(config.layers):
        for name, shape in _layer(config, layer):
            yield f"{prefix}layers.{index}.{name}", shape
    if head and not config.tied:
        yield next((name for name in HEADS if name in names), HEADS[0]), table


def _layer(config: DecoderConfig, layer: LayerConfig) -> Iterator[Wanted]:
    for name in NORMS[config.norm_place]:
        if name is not None:
            yield f"{name}.weight", (config.hidden,)
    if config.head_norm != "none":
        whole = config.head_norm == "width"
        yield "self_attn.q_norm.weight", (config.q_width if whole else config.head_dim,)
        yield "self_attn.k_norm.weight", (config.kv_width if whole else config.head_dim,)
    yield from _attention(config)
    yield from _feed_forward(config, layer)


def _attention(config: DecoderConfig) -> Iterator[Wanted]:
    at, hidden = "self_attn.", config.hidden
    if config.fused:
        yield from _linear(f"{at}qkv_proj", config.q_width + 2 * config.kv_width, hidden, False)
    else:
        yield from _linear(f"{at}q_proj", config.q_width, hidden, config.qkv_bias)
        yield from _linear(f"{at}k_proj", config.kv_width, hidden, config.qkv_bias)
        yield from _linear(f"{at}v_proj", config.kv_width, hidden, config.qkv_bias)
    yield from _linear(f"{at}o_proj", hidden, config.q_width, config.output_bias)


def _feed_forward(config: DecoderConfig, layer: LayerConfig) -> Iterator[Wanted]:
    experts = layer.experts
    if experts is None:
        yield from _dense(config, "mlp.", layer.width, ("gate_proj", "up_proj", "down_proj"))
        return
    mixtral = config.expert_names == "mixtral"
    at = "block_sparse_moe." if mixtral else "mlp."
    parts = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    yield f"{at}gate.weight", (experts.count, config.hidden)
    for index in range(experts.count):
        yield from _dense(config, f"{at}experts.{index}.", experts.width, parts)
    if experts.shared_width:
        qwen = ("gate_proj", "up_proj", "down_proj")
        yield from _dense(config, f"{at}shared_expert.", experts.shared_width, qwen)
        yield f"{at}shared_expert_gate.weight", (1, config.hidden)


def _dense(
    config: DecoderConfig, at: str, width: int, parts: tuple[str, str, str]
) -> Iterator[Wanted]:
    gate, up, down = parts
    hidden, bias = config.hidden, config.mlp_bias
    if config.fused:
        yield from _linear(f"{at}gate_up_proj", 2 * width, hidden, bias)
    else:
        yield from _linear(at + gate, width, hidden, bias)
        yield from _linear(at + up, width, hidden, bias)
    yield from _linear(at + down, hidden, width, bias)


def _linear(name: str, outputs: int, inputs: int, biased: bool) -> Iterator[Wanted]:
    yield f"{name}.weight", (outputs, inputs)
    if biased:
        yield f"{name}.bias", (outputs,)
