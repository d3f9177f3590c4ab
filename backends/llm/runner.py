"""One forward pass and what is chosen from it; the engine's only call into the model.

Comes from `schedulers.llm.engine` with the jobs of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backends.llm.errors import DeviceLost
from backends.llm.model.decoder import Decoder
from backends.llm.rows import Span, pack
from backends.llm.sampling.sampler import SampledToken, SamplingRow, sample, score
from backends.llm.sampling.select_tokens import Pick, pick_plainly
from backends.llm.sampling.token_logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class ForwardItem:
    """A span to compute. `draw`: how its last row's token is chosen, None where none is wanted.

    `score_prompt`: None, or how many of the likeliest tokens to report beside each of the span's
    tokens; then `following` is the token after the span, or None when it is not known yet.
    """

    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    draw: SamplingRow | None
    score_prompt: int | None = None
    following: int | None = None


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """`sampled`: the token of a job with a draw, None if its logits were not numbers.

    `prompt`: for a job that scores the prompt, what each of its tokens after the first is like,
    and `following` if that is known.
    """

    sampled: SampledToken | None
    prompt: tuple[TokenLogprobs, ...] = ()


class Runner:
    """A decoder that is given jobs, and what chooses tokens; not shared between threads."""

    def __init__(self, decoder: Decoder, pick: Pick = pick_plainly) -> None:
        self._decoder = decoder
        self._pick = pick

    @torch.inference_mode()
    def run(self, jobs: Sequence[ForwardItem]) -> list[ForwardResult]:
        """Compute all jobs in one pass, and choose tokens for those that draw.

        Raises DeviceLost, after which no other call will do better; and whatever torch raises, of
        these jobs alone.
        """
        try:
            return self._run(jobs)
        except torch.AcceleratorError as error:
            raise DeviceLost(str(error)) from error

    def _run(self, jobs: Sequence[ForwardItem]) -> list[ForwardResult]:
        spans = [Span(job.tokens, job.start, job.blocks, _logit_rows(job)) for job in jobs]
        logits = self._decoder.forward(pack(spans, self._decoder.ops.block_tokens))
        parts = torch.split(logits, [span.logits for span in spans])
        done = [
            ForwardResult(
                None, _score_prompt(job, part.cpu()) if job.score_prompt is not None else ()
            )
            for job, part in zip(jobs, parts, strict=True)
        ]
        return self._sample(jobs, logits, spans, done)

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold what is not a number."""
        if blocks:
            self._decoder.clear(blocks)

    def discard(self, blocks: Sequence[int]) -> int:
        """Give the memory of blocks nobody uses back to the system; bytes that went."""
        return self._decoder.discard(blocks)

    @property
    def gives_back(self) -> bool:
        """Whether `discard` can do anything here."""
        return self._decoder.gives_back

    def _sample(
        self,
        jobs: Sequence[ForwardItem],
        logits: Tensor,
        spans: Sequence[Span],
        done: list[ForwardResult],
    ) -> list[ForwardResult]:
        drawing, rows, end = [], [], 0
        for index, (job, span) in enumerate(zip(jobs, spans, strict=True)):
            end += span.logits
            if job.draw is not None:
                drawing.append(index)
                rows.append(end - 1)
        if not drawing:
            return done
        chosen = logits if len(rows) == len(logits) else logits[rows]
        draws = [draw for job in jobs if (draw := job.draw) is not None]
        for index, sampled in zip(drawing, sample(chosen.cpu(), draws, self._pick), strict=True):
            done[index] = replace(done[index], sampled=sampled)
        return done


def _logit_rows(job: ForwardItem) -> int:
    if job.score_prompt is not None:
        return len(job.tokens)
    return 0 if job.draw is None else 1


def _score_prompt(job: ForwardItem, logits: Tensor) -> tuple[TokenLogprobs, ...]:
    following = () if job.following is None else (job.following,)
    targets = (*job.tokens[1:], *following)
    count = job.score_prompt or 0
    return tuple(score(row, token, count) for row, token in zip(logits, targets, strict=False))
