"""Which implementation of the device operations serves a model on this machine."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backends.llm.config.decoder import DecoderConfig
from backends.llm.errors import NoDevice, NoKernels
from backends.llm.kernels.library import kernels
from backends.llm.ops.compiled import CompiledOps, pack_linear
from backends.llm.ops.cuda import CudaOps, triton_kernels
from backends.llm.ops.linears import make_linear
from backends.llm.ops.quantise import Weight, joined
from backends.llm.ops.reference import CPU, TorchOps
from backends.llm.ops.seam import CacheType, Linear, Ops, Precision

log = logging.getLogger(__name__)


def choose_ops(
    config: DecoderConfig,
    precision: Precision,
    cache_type: CacheType,
    block_tokens: int,
    compiled: bool = True,
    device: torch.device = CPU,
) -> Ops:
    """Our kernels if they can be had and suit the model, else plain torch, with one log line.

    `compiled` False takes plain torch in any case. A `device` other than the CPU is one that
    `open_device` gave.
    """
    if device.type == "cuda":
        return _choose_cuda(config, precision, block_tokens, compiled, device)
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


def open_device(name: str) -> torch.device:
    """The device of that name, "cpu" or "cuda:N", made the process's own: kernels run on the
    current one. Raises NoDevice."""
    device = torch.device(name)
    if device.type == "cpu":
        return device
    count = torch.cuda.device_count()
    if device.index >= count:
        raise NoDevice(
            f"{name} was asked for, but torch {torch.__version__} sees {count} CUDA devices; use "
            "instance_group KIND_CPU"
        )
    try:
        torch.cuda.set_device(device)
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise NoDevice(f"{name} cannot be used: {error}") from error
    return device


def _choose_cuda(
    config: DecoderConfig,
    precision: Precision,
    block_tokens: int,
    compiled: bool,
    device: torch.device,
) -> Ops:
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    reason = "it was asked for"
    if compiled:
        try:
            return CudaOps(config, dtype, block_tokens, device, triton_kernels())
        except NoKernels as error:
            reason = str(error)
    log.warning("language model computes in plain torch on the GPU, which is slower: %s", reason)
    return CudaOps(config, dtype, block_tokens, device, None)


Pack = Callable[[Sequence[Weight], Tensor | None], Linear]
"""Weights [outputs, inputs] of the same inputs, one after the other, and their bias as a linear;
see `Ops.pack`."""


@dataclass(frozen=True, slots=True)
class Linears:
    """Linears alone, for models that are no decoders: they take and give rows of `dtype`."""

    name: str
    dtype: torch.dtype
    pack: Pack


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
    def pack(weights: Sequence[Weight], bias: Tensor | None) -> Linear:
        return make_linear(joined(weights), bias, precision, dtype, False)

    return Linears("torch", dtype, pack)
