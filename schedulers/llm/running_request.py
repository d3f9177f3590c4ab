"""An answer in the making: its draws, its text, and why it ends. One per request, in the engine."""

from collections.abc import Sequence
from hashlib import blake2b

from backends.llm.grammar.spec import Grammar
from backends.llm.runner import ForwardItem, ForwardResult
from backends.llm.sampling.sampler import SamplingRow
from backends.llm.sampling.token_logprobs import TokenLogprobs
from backends.llm.tokens.detokenise import Detokeniser, StopStrings, TextPiece
from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.llm.generation import GenerateRequest, GenerationOutput
from schedulers.llm.request import Finish
from schedulers.llm.step import Chunk, SequenceAdvance


class RunningRequest:
    """What the engine keeps of a request beside the scheduler's Sequence.

    `grammar`: the request's, compiled; the engine sets it before anything is computed.
    """

    def __init__(
        self, request: GenerateRequest, tokeniser: Tokeniser, end_ids: Sequence[int]
    ) -> None:
        """Raises ValueError when the request contradicts itself."""
        self.request = request
        self.grammar: Grammar | None = None
        self.tokens = list(request.prompt)
        ends = () if request.ignore_end else tuple(end_ids)
        self.stop_ids = frozenset((*ends, *request.stop_ids))
        self._ignored = frozenset(end_ids if request.ignore_end else ())
        self._seed = _seed(request.id) if request.seed is None else request.seed
        self._detokeniser = Detokeniser(tokeniser, request.skip_special, request.shown)
        self._stops = StopStrings(request.stop)
        self._prompt_scored = 1
        self._cached: int | None = None

    @property
    def begun(self) -> bool:
        """Whether anything of it was computed."""
        return self._cached is not None

    def job(self, chunk: Chunk) -> ForwardItem:
        """What the model is to compute and choose for a chunk."""
        if self._cached is None:
            self._cached = chunk.start
        end = chunk.start + len(chunk.tokens)
        scores = end > self._prompt_scored - 1 and chunk.start < len(self.request.prompt)
        return ForwardItem(
            tokens=chunk.tokens,
            start=chunk.start,
            blocks=chunk.blocks,
            draw=self._draw() if chunk.samples else None,
            score_prompt=self.request.prompt_logprobs if scores else None,
            following=self.request.prompt[end] if end < len(self.request.prompt) else None,
        )

    def record(
        self, chunk: Chunk, done: ForwardResult, advance: SequenceAdvance | None
    ) -> GenerationOutput | None:
        """Take in a computed chunk; the output for the caller, None if there is none."""
        prompt = self._new_prompt_scores(chunk, done.prompt)
        if advance is None or done.sampled is None:
            return GenerationOutput(self.request.id, prompt=prompt) if prompt else None
        return self._said(advance, done.sampled.scored, prompt)

    def ended(self, finish: Finish, message: str) -> GenerationOutput:
        """The end without a token; what was held back of the text comes with it."""
        return GenerationOutput(self.request.id, text=self._rest(), finish=finish, message=message)

    def _draw(self) -> SamplingRow:
        generated = len(self.tokens) - len(self.request.prompt)
        grammar = self.grammar
        early = generated < self.request.min_tokens
        # A grammar offers the end tokens by itself, where the answer may end.
        ignored = self._ignored if grammar is not None else frozenset()
        return SamplingRow(
            params=self.request.sampling,
            tokens=self.tokens,
            prompt=len(self.request.prompt),
            seed=self._seed,
            banned=sorted(self.stop_ids | ignored if early else ignored),
            allowed=None if grammar is None else grammar.allowed(),
        )

    def _said(
        self,
        advance: SequenceAdvance,
        scored: TokenLogprobs | None,
        prompt: tuple[TokenLogprobs, ...],
    ) -> GenerationOutput:
        self.tokens.append(advance.token)
        stopped_by: str | int | None = None
        finish = advance.finish
        text = ""
        if finish is Finish.STOP:
            stopped_by = advance.token
        else:
            piece = self._watched(self._detokeniser.add(advance.token))
            text, stopped_by = piece.text, piece.stopped_by
            if stopped_by is not None or self._is_complete(advance.token):
                finish = Finish.STOP
        if finish is not None and not isinstance(stopped_by, str):
            text += self._rest()
        return GenerationOutput(
            self.request.id, advance.token, text, scored, finish, stopped_by,
            prompt=prompt, cached_tokens=self._cached or 0,
        )  # fmt: skip

    def _is_complete(self, token: int) -> bool:
        grammar = self.grammar
        return grammar is not None and grammar.accept(token)

    def _watched(self, text: str) -> TextPiece:
        generated = len(self.tokens) - len(self.request.prompt)
        return self._stops.add(text) if generated > self.request.min_tokens else TextPiece(text)

    def _rest(self) -> str:
        piece = self._stops.add(self._detokeniser.flush())
        return piece.text if piece.stopped_by is not None else piece.text + self._stops.flush()

    def _new_prompt_scores(
        self, chunk: Chunk, scores: Sequence[TokenLogprobs]
    ) -> tuple[TokenLogprobs, ...]:
        """Of the scores for positions `chunk.start + 1` on, those of the prompt not told before."""
        told = max(self._prompt_scored - (chunk.start + 1), 0)
        new = tuple(scores[told : len(self.request.prompt) - (chunk.start + 1)])
        self._prompt_scored += len(new)
        return new


def _seed(id: str) -> int:
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest())
