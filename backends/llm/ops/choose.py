"""Which implementation of the device operations serves a model on this machine."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backends.llm.config import DecoderConfig
from backends.llm.errors import NoKernels
from backends.llm.kernels.library import kernels
from backends.llm.ops.compiled import CompiledOps, pack_linear
from backends.llm.ops.linears import make_linear
from backends.llm.ops.reference import TorchOps
from backends.llm.ops.seam import CacheType, Linear, Ops, Precision

log = logging.getLogger(__name__)


def choose_ops(
    config: DecoderConfig,
    precision: Precision,
    cache_type: CacheType,
    block_tokens: int,
    compiled: bool = True,
) -> Ops:
    """Our kernels if they can be had and suit the model, else plain torch, with one log line.

    `compiled` False takes plain torch in any case.
    """
    if precision == "float32":
        return TorchOps(config, torch.float32, block_tokens)
    reason = "it was asked for"
    if compiled:
        try:
            return CompiledOps(config, block_tokens, cache_type)
        except NoKernels as error:
            reason = str(error)
    log.warning("language model computes in plain torch, which is slower: %s", reason)
    between = torch.float32 if precision == "int8" else None
    return TorchOps(config, torch.bfloat16, block_tokens, between)


@dataclass(frozen=True, slots=True)
class Linears:
    """Linears alone, for models that are no decoders: they take and give rows of `dtype`."""

    name: str
    dtype: torch.dtype
    pack: Callable[[Tensor, Tensor | None], Linear]


def choose_linears(precision: Precision, compiled: bool = True) -> Linears:
    """On our kernels if they can be had, else on plain torch, with one log line."""
    if precision == "float32":
        return _plain_linears(precision, torch.float32)
    reason = "it was asked for"
    if compiled:
        try:
            kernels()
        except NoKernels as error:
            reason = str(error)
        else:
            return Linears("compiled", torch.bfloat16, partial(pack_linear, precision=precision))
    log.warning("embedding model computes in plain torch, which is slower: %s", reason)
    return _plain_linears(precision, torch.bfloat16)


def _plain_linears(precision: Precision, dtype: torch.dtype) -> Linears:
    return Linears(
        "torch", dtype, lambda weight, bias: make_linear(weight, bias, precision, dtype, False)
    )
