"""What one step runs and what came of it: frozen values between the scheduler and its loop.
Pure."""

from dataclasses import dataclass

from backends.llm.span import Span
from schedulers.llm.generation import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk(Span):
    """A span of the sequence `id`.

    `samples`: whether its last row yields the sequence's next token. `preemption_epoch`: tells a
    chunk of a sequence that was preempted since from a current one.
    """

    id: str
    samples: bool
    preemption_epoch: int


@dataclass(frozen=True, slots=True)
class EndedSequence:
    """A sequence that left without a token: its deadline passed, or it can never fit."""

    id: str
    reason: Finish
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: decode rows first, then chunks of prompts."""

    chunks: tuple[Chunk, ...]
    preempted: tuple[str, ...] = ()
    ended: tuple[EndedSequence, ...] = ()
