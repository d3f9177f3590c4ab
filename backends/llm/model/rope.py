"""Rotary positions: the cosines and sines that come of what a config says of them."""

import math

import torch

from backends.llm.config.decoder import RopeConfig


def rope_tables(rope: RopeConfig, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines by position and pair of dimensions, float32 [context, dims / 2].

    LongRoPE takes its long divisors when `context` exceeds what the model was trained on: keys
    that are already in the cache could not be turned again when a sequence passes that point.
    """
    frequencies, amplitude = _COMPUTERS[rope.kind](rope, context)
    angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies)
    return (angles.cos() * amplitude).contiguous(), (angles.sin() * amplitude).contiguous()


def _plain(rope: RopeConfig) -> torch.Tensor:
    exponents = torch.arange(0, rope.dims, 2, dtype=torch.float32) / rope.dims
    return 1.0 / (rope.theta**exponents)


def _compute_default(rope: RopeConfig, context: int) -> tuple[torch.Tensor, float]:
    return _plain(rope), 1.0


def _compute_linear(rope: RopeConfig, context: int) -> tuple[torch.Tensor, float]:
    return _plain(rope) / rope.factor, 1.0


def _compute_llama3(rope: RopeConfig, context: int) -> tuple[torch.Tensor, float]:
    plain = _plain(rope)
    turns = rope.original_positions * plain / (2 * math.pi)
    blend = ((turns - rope.low) / (rope.high - rope.low)).clamp(0.0, 1.0)
    return (1 - blend) * plain / rope.factor + blend * plain, 1.0


def _compute_yarn(rope: RopeConfig, context: int) -> tuple[torch.Tensor, float]:
    plain = _plain(rope)
    first, last = _yarn_dimension(rope, rope.high), _yarn_dimension(rope, rope.low)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dims - 1)
    steps = torch.arange(rope.dims // 2, dtype=torch.float32) - first
    stretched = (steps / max(last - first, 0.001)).clamp(0.0, 1.0)
    return plain / rope.factor * stretched + plain * (1 - stretched), _yarn_amplitude(rope)


def _yarn_dimension(rope: RopeConfig, turns: float) -> float:
    """The dimension that turns so often within the original context."""
    ratio = rope.original_positions / (turns * 2 * math.pi)
    return rope.dims * math.log(ratio) / (2 * math.log(rope.theta))


def _yarn_amplitude(rope: RopeConfig) -> float:
    if rope.amplitude is not None:
        return rope.amplitude
    logarithm = 0.1 * math.log(max(rope.factor, 1.0))
    if all(rope.mscale):
        return (rope.mscale[0] * logarithm + 1.0) / (rope.mscale[1] * logarithm + 1.0)
    return logarithm + 1.0


def _compute_longrope(rope: RopeConfig, context: int) -> tuple[torch.Tensor, float]:
    divisors = rope.long if context > rope.original_positions else rope.short
    amplitude = rope.amplitude
    if amplitude is None:
        logarithm = math.log(max(rope.factor, 1.0))
        amplitude = math.sqrt(1 + logarithm / math.log(rope.original_positions))
    return _plain(rope) / torch.tensor(divisors), amplitude


_COMPUTERS = {
    "default": _compute_default,
    "linear": _compute_linear,
    "llama3": _compute_llama3,
    "yarn": _compute_yarn,
    "longrope": _compute_longrope,
}
