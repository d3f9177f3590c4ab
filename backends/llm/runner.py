"""One forward pass and what is chosen from it; the engine's only call into the model.

Comes from `schedulers.llm.engine.engine` with the spans of a step.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backends.llm.errors import DeviceLost
from backends.llm.model.decoder import Decoder
from backends.llm.rows import pack
from backends.llm.sampling.sampler import ForwardResult, SamplingRow, sample, sample_on, score
from backends.llm.sampling.select_tokens import Pick, pick_plainly
from backends.llm.sampling.token_logprobs import TokenLogprobs
from backends.llm.span import Span


class Runner:
    """A decoder that is given spans, and what chooses tokens; not shared between threads.

    `device_pick`: chooses on the decoder's device, where it can.
    """

    def __init__(
        self, decoder: Decoder, pick: Pick = pick_plainly, device_pick: Pick | None = None
    ) -> None:
        self._decoder = decoder
        self._pick = pick
        self._device_pick = device_pick

    @torch.inference_mode()
    def run(self, spans: Sequence[Span], rows: Sequence[SamplingRow | None]) -> list[ForwardResult]:
        """Compute all spans in one pass, and choose a token for each that has a row.

        Raises DeviceLost, after which no other call will do better; and whatever torch raises, of
        these spans alone.
        """
        try:
            return self._run(spans, rows)
        except torch.AcceleratorError as error:
            raise DeviceLost(str(error)) from error

    def _run(
        self, spans: Sequence[Span], rows: Sequence[SamplingRow | None]
    ) -> list[ForwardResult]:
        logits = self._decoder.forward(pack(spans, self._decoder.ops.block_tokens))
        prompts = _score_prompts(spans, logits)  # before logits are overwritten
        results = self._sample(spans, rows, logits)
        for index, scores in prompts:
            results[index] = replace(results[index], prompt=scores)
        return results

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
        self, spans: Sequence[Span], rows: Sequence[SamplingRow | None], logits: Tensor
    ) -> list[ForwardResult]:
        """`logits` are overwritten."""
        lasts, end = [], 0
        for span, row in zip(spans, rows, strict=True):
            end += span.logits
            if row is not None:
                lasts.append(end - 1)
        if not lasts:
            return [ForwardResult()] * len(spans)
        chosen = logits if len(lasts) == len(logits) else logits[lasts]
        sampling = [row for row in rows if row is not None]
        if self._device_pick is None:
            results = sample(chosen.cpu(), sampling, self._pick)
        else:
            results = sample_on(chosen, sampling, self._pick, self._device_pick)
        sampled = iter(results)
        return [ForwardResult() if row is None else next(sampled) for row in rows]


def _score_prompts(
    spans: Sequence[Span], logits: Tensor
) -> list[tuple[int, tuple[TokenLogprobs, ...]]]:
    """Of each span that wants it, by its place."""
    found, end = [], 0
    for index, span in enumerate(spans):
        start, end = end, end + span.logits
        if span.score_prompt is not None:
            found.append((index, _score_prompt(span, logits[start:end].cpu())))
    return found


def _score_prompt(span: Span, logits: Tensor) -> tuple[TokenLogprobs, ...]:
    following = () if span.following is None else (span.following,)
    targets = (*span.tokens[1:], *following)
    count = span.score_prompt or 0
    return tuple(score(row, token, count) for row, token in zip(logits, targets, strict=False))
