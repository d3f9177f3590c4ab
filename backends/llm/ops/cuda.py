"""The device operations on an NVIDIA GPU: torch's own, and attention by our Triton kernels.

Tensors may as well lie on the CPU, where Triton's interpreter runs the same kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.llm.config.decoder import Activation, DecoderConfig
from backends.llm.errors import NoKernels
from backends.llm.kernels.paged_rows import BatchRows, Pages, RotateSpec, ScoreSpec, Tiles
from backends.llm.ops.cuda_linears import Multiply, make_linear
from backends.llm.ops.quantise import Weight, joined
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import AttentionSpec, Linear, Precision, QueryKeySpec
from backends.llm.ops.torch_attention import AttentionPlan
from backends.llm.ops.torch_cache import PlainCache, Slots, TorchCache
from backends.llm.rows import ForwardBatch

Attend = Callable[[Tensor, Pages, BatchRows, Tiles, ScoreSpec, Tensor], None]
AddNorm = Callable[[Tensor, Tensor | None, float, Tensor, float, torch.dtype], Tensor]
Store = Callable[[Tensor, RotateSpec, Tensor, Tensor, Pages], Tensor]


@dataclass(frozen=True, slots=True)
class TritonKernels:
    """Functions of `backends.llm.kernels`, by module.

    `attend`, `rows_per_tile`: paged_attention. `multiply`: packed_linear, the product with int4
    weights. `add_norm`, `gate`, and the `widest` row of the former: fused_rows. `store`:
    rotate_store.
    """

    attend: Attend
    rows_per_tile: Callable[[int, int, int], int]
    multiply: Multiply
    add_norm: AddNorm
    gate: Callable[[Tensor, str], Tensor]
    widest: int
    store: Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledPlan(AttentionPlan):
    """A batch and its tiles for the kernels: `singles` of one row, `chunks` of several; None where
    there are none of a kind. Has no groups, which are what plain torch computes by."""

    rows: BatchRows
    singles: Tiles | None
    chunks: Tiles | None


class CudaOps(TorchOps):
    """Products are torch's, the rest our kernels' as far as they go; see `llm.ops.seam.Ops`.

    `kernels`: what `triton_kernels` gives; None leaves everything to plain torch. The cache is the
    one of plain torch, whose blocks hold a head's tokens side by side, as the kernels read them.
    """

    def __init__(
        self,
        config: DecoderConfig,
        dtype: torch.dtype,
        block_tokens: int,
        device: torch.device,
        kernels: TritonKernels | None,
    ) -> None:
        super().__init__(config, dtype, block_tokens, device=device)
        self._kernels = kernels
        self.name = "cuda" if kernels is not None else "cuda, in plain torch"
        # Experts are chosen on the host, in the middle of a layer; so are groups of plain torch.
        routed = any(layer.experts is not None for layer in config.layers)
        self.replays = kernels is not None and device.type == "cuda" and not routed

    def pack(
        self,
        weights: Sequence[Weight],
        bias: Tensor | None,
        precision: Precision,
        wide: bool = False,
    ) -> Linear:
        multiply = None if self._kernels is None else self._kernels.multiply
        return make_linear(
            joined(weights), bias, precision, self.dtype, wide, self.device, multiply=multiply
        )

    def add_norm(
        self, stream: Tensor, delta: Tensor | None, scale: float, weight: Tensor, eps: float
    ) -> Tensor:
        if self._kernels is None or stream.shape[1] > self._kernels.widest:
            return super().add_norm(stream, delta, scale, weight, eps)
        return self._kernels.add_norm(stream, delta, scale, weight, eps, self._between)

    def gate(self, rows: Tensor, activation: Activation) -> Tensor:
        if self._kernels is None or activation == "gelu":
            return super().gate(rows, activation)
        return self._kernels.gate(rows, activation)

    def store(
        self, qkv: Tensor, turn: QueryKeySpec, cache: TorchCache, plan: AttentionPlan, eps: float
    ) -> Tensor:
        whole = isinstance(cache, PlainCache) and turn.head_norm != "width"
        if self._kernels is None or not whole:
            return super().store(qkv, turn, cache, plan, eps)
        spec = RotateSpec(turn.cosines, turn.sines, turn.q_norm, turn.k_norm, eps)
        keys, values = cache.tensors
        batch = plan.batch
        pages = Pages(keys, values, None)
        return self._kernels.store(qkv, spec, batch.positions, batch.slots, pages)

    def plan(self, batch: ForwardBatch) -> AttentionPlan:
        if self._kernels is None:
            return super().plan(batch)
        config = self.config
        sharing = config.heads // config.kv_heads
        most = self._kernels.rows_per_tile(sharing, config.head_dim, self.dtype.itemsize)
        return plan_tiles(batch, self.block_tokens, most)

    def attend(
        self, queries: Tensor, cache: TorchCache, plan: AttentionPlan, sight: AttentionSpec
    ) -> Tensor:
        if not isinstance(plan, TiledPlan) or self._kernels is None:
            return super().attend(queries, cache, plan, sight)
        keys, values, *scales = cache.tensors
        pages = Pages(keys, values, (scales[0], scales[1]) if scales else None)
        scores = ScoreSpec(sight.window, sight.scale, sight.cap)
        shape = (len(queries), self.config.heads, self.config.head_dim)
        result = torch.empty(shape, dtype=self.dtype, device=self.device)
        for tiles in (plan.singles, plan.chunks):
            if tiles is not None:
                self._kernels.attend(queries, pages, plan.rows, tiles, scores, result)
        return result.flatten(1)


def plan_tiles(batch: ForwardBatch, block_tokens: int, most: int) -> TiledPlan:
    """At most so many rows in a tile. For a batch of single rows nothing is copied from the host:
    such a step may be recorded."""
    places, device = batch.places, batch.device
    firsts = [place.first for place in places if place.rows == 1]
    starts = torch.arange(len(places), dtype=torch.int32, device=device)
    if len(firsts) < len(places):
        starts = torch.tensor(firsts, dtype=torch.int32, device=device)
    bounds = [
        (first, min(first + most, place.last))
        for place in places
        if place.rows > 1
        for first in range(place.first, place.last, most)
    ]
    slots = Slots(batch.slots // block_tokens, batch.slots % block_tokens)
    chunks = torch.tensor(bounds, dtype=torch.int32, device=device) if bounds else None
    return TiledPlan(
        batch=batch,
        slots=slots,
        groups=(),
        rows=BatchRows(batch.positions, batch.span_of, batch.tables),
        singles=Tiles(torch.stack((starts, starts + 1), 1), 1) if firsts else None,
        chunks=None if chunks is None else Tiles(chunks, most),
    )


def triton_kernels() -> TritonKernels:
    """Raises NoKernels where there is no Triton, which comes with torch for CUDA only."""
    try:
        from backends.llm.kernels import fused_rows, packed_linear, paged_attention, rotate_store
    except ImportError as error:
        raise NoKernels(f"Triton cannot be imported: {error}") from None
    return TritonKernels(
        attend=paged_attention.attend,
        rows_per_tile=paged_attention.rows_per_tile,
        multiply=packed_linear.multiply,
        add_norm=fused_rows.add_norm,
        gate=fused_rows.gate,
        widest=fused_rows.WIDEST,
        store=rotate_store.store,
    )
