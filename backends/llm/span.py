"""What one forward pass computes of one sequence. Pure.

Planned by `schedulers.llm.policy.scheduler`, packed by `backends.llm.rows`: one value all the way.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence, from position `start`.

    `blocks`: the sequence's block table, long enough for the span. `logits`: how many of the last
    rows need logits. `score_prompt`: None, or how many of the likeliest tokens to report beside
    each of the span's tokens, all of which need logits then; `following` is the token after the
    span, None where it is not known yet.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    logits: int
    score_prompt: int | None = None
    following: int | None = None
