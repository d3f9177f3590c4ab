"""What a model occupies, computed from its config before anything is loaded."""

from dataclasses import dataclass

from backends.llm.config.decoder import DecoderConfig, LayerConfig
from backends.llm.config.precision import GROUP, CacheType, Precision
from backends.llm.errors import NoRoom


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes: of the weights, of the largest step's intermediate results, of one block of keys and
    values in all layers; and how many such blocks there are."""

    weights: int
    workspace: int
    block: int
    blocks: int

    @property
    def total(self) -> int:
        return self.weights + self.workspace + self.block * self.blocks


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """How a model is to be held: see Precision and CacheType; `compute_bytes` of one number."""

    precision: Precision
    cache_type: CacheType
    compute_bytes: int
    block_tokens: int


def plan_memory(
    config: DecoderConfig, layout: MemoryLayout, budget: int, context: int, step_tokens: int
) -> MemoryPlan:
    """Spend `budget` bytes: what the weights and a step leave becomes blocks.

    Raises NoRoom when that is not even one sequence of `context` tokens.
    """
    weights = weight_bytes(config, layout)
    workspace = workspace_bytes(config, step_tokens)
    block = block_bytes(config, layout)
    blocks = (budget - weights - workspace) // block
    needed = -(-context // layout.block_tokens)
    if blocks < needed:
        wanted = weights + workspace + needed * block
        raise NoRoom(
            f"the memory budget of {budget >> 20} MiB is too small: weights {weights >> 20}, "
            f"a step {workspace >> 20} and one context of {context} tokens "
            f"{needed * block >> 20} MiB; give at least {(wanted >> 20) + 1} MiB, or a shorter "
            "context, fewer bits"
        )
    return MemoryPlan(weights, workspace, block, blocks)


def block_bytes(config: DecoderConfig, layout: MemoryLayout) -> int:
    """Keys and values of one block, in all layers."""
    number = 1 if layout.cache_type == "int8" else layout.compute_bytes
    scale = 4 if layout.cache_type == "int8" else 0
    per_head = config.head_dim * number + scale
    return 2 * len(config.layers) * layout.block_tokens * config.kv_heads * per_head


def weight_bytes(config: DecoderConfig, layout: MemoryLayout) -> int:
    """Linears in their precision, the embedding table in the compute type, the rest float32."""
    table = config.vocabulary * config.hidden * layout.compute_bytes
    head = linear_bytes(config.vocabulary, config.hidden, layout)
    norms = (2 * len(config.layers) + 1) * config.hidden * 4
    return table + head + norms + sum(_layer_bytes(config, one, layout) for one in config.layers)


def _layer_bytes(config: DecoderConfig, layer: LayerConfig, layout: MemoryLayout) -> int:
    qkv = linear_bytes(config.q_width + 2 * config.kv_width, config.hidden, layout)
    attention = qkv + linear_bytes(config.hidden, config.q_width, layout)
    experts = layer.experts
    if experts is None:
        return attention + _dense_bytes(config, layer.width, layout)
    each = _dense_bytes(config, experts.width, layout)
    shared = _dense_bytes(config, experts.shared_width, layout) if experts.shared_width else 0
    return attention + experts.count * (each + 4 * config.hidden) + shared


def _dense_bytes(config: DecoderConfig, width: int, layout: MemoryLayout) -> int:
    gate_up = linear_bytes(2 * width, config.hidden, layout)
    return gate_up + linear_bytes(config.hidden, width, layout)


def linear_bytes(outputs: int, inputs: int, layout: MemoryLayout) -> int:
    """A packed weight with its scales."""
    if layout.precision == "int4" and inputs % GROUP == 0:
        return outputs * inputs // 2 + 4 * outputs * inputs // GROUP
    if layout.precision in ("int4", "int8"):
        return outputs * inputs + 4 * outputs
    return outputs * inputs * layout.compute_bytes


def workspace_bytes(config: DecoderConfig, step_tokens: int) -> int:
    """The widest intermediate results of a step, twice for what replaces them, and its logits."""
    experts = (layer.experts for layer in config.layers)
    widest = max(
        *(layer.width for layer in config.layers),
        *(one.shared_width for one in experts if one is not None),
        config.q_width + 2 * config.kv_width,
    )
    return step_tokens * 4 * (2 * 3 * widest + 4 * config.hidden + 2 * config.vocabulary)
