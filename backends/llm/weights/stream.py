"""A decoder's weights: streamed layer by layer from a checkpoint into a device's layouts.

At any time one layer is in memory as it was stored, beside what has been packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.llm.config.decoder import DecoderConfig, ExpertsConfig, LayerConfig
from backends.llm.ops.quantise import Weight
from backends.llm.ops.seam import Linear, Ops, Precision
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.expected_tensors import HEADS, NORMS, find_prefix


@dataclass(frozen=True, slots=True)
class Dense:
    """A gated feed-forward part: `gate_up` gives [gate, up] side by side."""

    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Experts:
    """`router`: float32 [experts, hidden]. `shared_gate`: float32 [1, hidden], with `shared`."""

    router: Tensor
    each: tuple[Dense, ...]
    shared: Dense | None
    shared_gate: Tensor | None


@dataclass(frozen=True, slots=True)
class Layer:
    """Norm weights are float32, with the family's offset added; None where it has no such norm."""

    before_attention: Tensor | None
    after_attention: Tensor | None
    before_mlp: Tensor | None
    after_mlp: Tensor | None
    qkv: Linear
    output: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    mlp: Dense | Experts


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything a decoder multiplies with. `head`: None where no logits are wanted. `bytes`: what
    it occupies."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear | None
    bytes: int


def load_weights(
    checkpoint: Checkpoint,
    config: DecoderConfig,
    ops: Ops,
    precision: Precision,
    *,
    head: bool = True,
) -> DecoderWeights:
    """Raises BadCheckpoint naming a tensor that is missing or has another shape."""
    return _DecoderReader(checkpoint, config, ops, precision).weights(head)


class _DecoderReader:
    """One pass over a checkpoint."""

    def __init__(
        self, checkpoint: Checkpoint, config: DecoderConfig, ops: Ops, precision: Precision
    ) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._ops = ops
        self._precision = precision
        self._prefix = find_prefix(checkpoint)
        self._bytes = 0

    def weights(self, with_head: bool) -> DecoderWeights:
        config = self._config
        table = self._tensor("embed_tokens.weight", config.vocabulary, config.hidden)
        embedding = self._ops.table(table)
        self._bytes += embedding.nbytes
        layers = tuple(self._layer(index, layer) for index, layer in enumerate(config.layers))
        norm = self._norm("norm")
        head = None
        if with_head:
            head = self._pack([table if config.tied else self._head()], None, wide=True)
        return DecoderWeights(embedding, layers, norm, head, self._bytes)

    def _head(self) -> Weight:
        name = self._checkpoint.first(HEADS) or HEADS[0]
        return self._checkpoint.weight(name, self._config.vocabulary, self._config.hidden)

    def _layer(self, index: int, layer: LayerConfig) -> Layer:
        at = f"layers.{index}."
        norms = NORMS[self._config.norm_place]
        before, after, before_mlp, after_mlp = (
            None if name is None else self._norm(at + name) for name in norms
        )
        q_norm, k_norm = self._head_norms(f"{at}self_attn.")
        return Layer(
            before_attention=before,
            after_attention=after,
            before_mlp=before_mlp,
            after_mlp=after_mlp,
            qkv=self._qkv(f"{at}self_attn."),
            output=self._output(f"{at}self_attn.o_proj"),
            q_norm=q_norm,
            k_norm=k_norm,
            mlp=self._mlp(at, layer),
        )

    def _head_norms(self, at: str) -> tuple[Tensor | None, Tensor | None]:
        config = self._config
        if config.head_norm == "none":
            return None, None
        whole = config.head_norm == "width"
        return (
            self._norm(f"{at}q_norm", config.q_width if whole else config.head_dim),
            self._norm(f"{at}k_norm", config.kv_width if whole else config.head_dim),
        )

    def _qkv(self, at: str) -> Linear:
        config = self._config
        widths = {"q": config.q_width, "k": config.kv_width, "v": config.kv_width}
        if config.fused:
            return self._linear(f"{at}qkv_proj", sum(widths.values()), config.hidden, False)
        parts = {f"{at}{name}_proj": width for name, width in widths.items()}
        return self._joined(parts, config.hidden, config.qkv_bias)

    def _output(self, name: str) -> Linear:
        config = self._config
        return self._linear(name, config.hidden, config.q_width, config.output_bias)

    def _mlp(self, at: str, layer: LayerConfig) -> Dense | Experts:
        if layer.experts is None:
            return self._dense(f"{at}mlp.", layer.width, _QWEN_PARTS)
        return self._experts(at, layer.experts)

    def _experts(self, at: str, experts: ExpertsConfig) -> Experts:
        mixtral = self._config.expert_names == "mixtral"
        at += "block_sparse_moe." if mixtral else "mlp."
        parts = _MIXTRAL_PARTS if mixtral else _QWEN_PARTS
        hidden = self._config.hidden
        shared = shared_gate = None
        if experts.shared_width:
            shared = self._dense(f"{at}shared_expert.", experts.shared_width, _QWEN_PARTS)
            shared_gate = self._float(f"{at}shared_expert_gate.weight", 1, hidden)
        return Experts(
            router=self._float(f"{at}gate.weight", experts.count, hidden),
            each=tuple(
                self._dense(f"{at}experts.{index}.", experts.width, parts)
                for index in range(experts.count)
            ),
            shared=shared,
            shared_gate=shared_gate,
        )

    def _dense(self, at: str, width: int, parts: tuple[str, str, str]) -> Dense:
        gate, up, down = parts
        hidden, bias = self._config.hidden, self._config.mlp_bias
        if self._config.fused:
            gate_up = self._linear(f"{at}gate_up_proj", 2 * width, hidden, bias)
        else:
            gate_up = self._joined({at + gate: width, at + up: width}, hidden, bias)
        return Dense(gate_up, self._linear(at + down, hidden, width, bias))

    def _linear(self, name: str, outputs: int, inputs: int, biased: bool) -> Linear:
        return self._joined({name: outputs}, inputs, biased)

    def _joined(self, outputs: dict[str, int], inputs: int, biased: bool) -> Linear:
        """Several linears of one input as one, by name and number of outputs."""
        weights = [self._weight(f"{one}.weight", count, inputs) for one, count in outputs.items()]
        biases = [self._tensor(f"{one}.bias", count) for one, count in outputs.items() if biased]
        return self._pack(weights, torch.cat(biases) if biased else None)

    def _pack(self, weights: Sequence[Weight], bias: Tensor | None, wide: bool = False) -> Linear:
        packed = self._ops.pack(weights, bias, self._precision, wide)
        self._bytes += packed.bytes
        return packed

    def _norm(self, name: str, width: int | None = None) -> Tensor:
        weight = self._float(f"{name}.weight", width or self._config.hidden)
        return (weight + self._config.norm_offset).contiguous()

    def _float(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensor(name, *shape).to(self._ops.device, torch.float32).contiguous()
        self._bytes += tensor.nbytes
        return tensor

    def _weight(self, name: str, outputs: int, inputs: int) -> Weight:
        return self._checkpoint.weight(self._prefix + name, outputs, inputs)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        return self._checkpoint.tensor(self._prefix + name, *shape)


_QWEN_PARTS = ("gate_proj", "up_proj", "down_proj")
_MIXTRAL_PARTS = ("w1", "w3", "w2")
