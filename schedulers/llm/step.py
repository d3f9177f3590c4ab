"""What one step runs and what came of it: frozen values between the scheduler and its loop.
Pure."""

from dataclasses import dataclass

from schedulers.llm.request import Finish


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence, `start` to `start + len(tokens)`.

    `blocks`: the sequence's block table, long enough for the chunk. `samples`: whether the
    chunk's last row yields the sequence's next token. `life`: tells a chunk of a sequence that
    was preempted since from a current one.
    """

    id: str
    tokens: tuple[int, ...]
    start: int
    blocks: tuple[int, ...]
    samples: bool
    life: int


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


@dataclass(frozen=True, slots=True)
class SequenceAdvance:
    """A sampled token and, if it was the sequence's last, why."""

    id: str
    token: int
    finish: Finish | None
