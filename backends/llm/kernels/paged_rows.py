"""What the kernel of paged attention is told; importing this needs no Triton."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Tiles:
    """What rows a kernel's programs take: int32 [N, 2], first row and end; `rows`: most of one."""

    bounds: Tensor
    rows: int


@dataclass(frozen=True, slots=True)
class Pages:
    """A layer's cache: `keys`, `values` [blocks, kv_heads, block_tokens, head_dim]. Where they are
    int8, `scales` has a float32 factor for each token and head of either, else it is None."""

    keys: Tensor
    values: Tensor
    scales: tuple[Tensor, Tensor] | None


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Where the rows of a batch are: `positions` [T], `span_of` [T], and the block `tables` [S, M]
    of their sequences; all of them whole numbers."""

    positions: Tensor
    span_of: Tensor
    tables: Tensor


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """How scores are made: see `backends.llm.ops.seam.AttentionSpec`."""

    window: int | None
    scale: float
    cap: float | None


@dataclass(frozen=True, slots=True)
class RotateSpec:
    """How queries and keys are prepared: see `backends.llm.ops.seam.QueryKeySpec`. Norms are of
    each head, or None; `eps`: theirs."""

    cosines: Tensor | None
    sines: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    eps: float
