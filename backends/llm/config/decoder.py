"""A decoder's shape as data: every difference between the supported families is a field here."""

from dataclasses import dataclass
from typing import Literal

NormPlace = Literal["before", "after", "around"]
"""Norms before each half of a layer (Llama), on its result (OLMo 2), or both (Gemma 2 and 3)."""
HeadNorm = Literal["none", "head", "width"]
"""Queries and keys are not normed, per head (Qwen 3), or over all heads at once (OLMo 2)."""
Activation = Literal["silu", "gelu_tanh", "gelu"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary positions: `dims` leading dimensions of each head turn; `kind` names the scaling.

    `original_positions`: the context the model was trained on before scaling. `short` and `long`:
    LongRoPE's divisors per pair of dimensions. `amplitude`: factor on cosine and sine, or None
    for the kind's own. `low`, `high`: Llama 3's frequency factors, or YaRN's beta_slow and
    beta_fast. `mscale`: YaRN's (mscale, mscale_all_dim), zeros for none. `truncate`: YaRN rounds
    its correction range outward to whole dimensions.
    """

    kind: Literal["default", "linear", "llama3", "yarn", "longrope"]
    theta: float
    dims: int
    factor: float = 1.0
    original_positions: int = 0
    low: float = 1.0
    high: float = 4.0
    amplitude: float | None = None
    mscale: tuple[float, float] = (0.0, 0.0)
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """A mixture of experts: `per_token` of `count` experts of inner size `width` see each token.

    `renormalise`: the chosen experts' weights add up to one. `shared_width`: inner size of the
    expert every token sees, 0 for none.
    """

    count: int
    per_token: int
    width: int
    renormalise: bool
    shared_width: int = 0


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One layer: `width` of its feed-forward part, or `experts` instead.

    `window`: a token sees itself and the `window - 1` before it; None sees everything before.
    `rope`: None leaves queries and keys where they are.
    """

    width: int
    window: int | None
    rope: RopeConfig | None
    experts: ExpertsConfig | None = None


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder-only transformer with RMS norms, rotary positions and gated feed-forward parts.

    `norm_offset` is added to every norm's weight. Scales multiply: the embeddings, what each half
    of a layer adds to the residual stream, the attention scores, the logits. Caps bound scores and
    logits smoothly (cap * tanh(x / cap)). `fused`: the checkpoint stores q, k, v and gate, up as
    one tensor each. `expert_names`: how it names experts. `end_ids`: tokens that end an answer.
    """

    family: str
    vocabulary: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[LayerConfig, ...]
    positions: int
    eps: float
    norm_offset: float = 0.0
    norm_place: NormPlace = "before"
    head_norm: HeadNorm = "none"
    activation: Activation = "silu"
    attention_scale: float = 1.0
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    tied: bool = False
    fused: bool = False
    expert_names: Literal["mixtral", "qwen"] = "qwen"
    end_ids: tuple[int, ...] = ()
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim
