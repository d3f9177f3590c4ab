"""An answer in the making: its draws, its text, and why it ends. One per request, in the engine."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from backends.llm.grammar.spec import Grammar
from backends.llm.sampling.sampler import ForwardResult, SamplingRow
from backends.llm.sampling.token_logprobs import TokenLogprobs
from backends.llm.tokens.detokenise import Detokeniser, StopStrings, TextPiece
from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.llm.generation import Finish, GenerateRequest, GenerationOutput
from schedulers.llm.policy.step import Chunk


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

    def sampling_row(self, chunk: Chunk) -> SamplingRow | None:
        """How the token behind a chunk, computed next, is to be chosen; None where none is."""
        if self._cached is None:
            self._cached = chunk.start
        return self._sampling_row() if chunk.samples else None

    def record(
        self, chunk: Chunk, result: ForwardResult, finishes: Mapping[str, Finish | None]
    ) -> GenerationOutput | None:
        """Take in a computed chunk; the output for the caller, None if there is none. `finishes`:
        of the sequences that have a new token."""
        prompt = self._new_prompt_scores(chunk, result.prompt)
        if result.token is None or chunk.id not in finishes:
            return GenerationOutput(self.request.id, prompt=prompt) if prompt else None
        return self._output(result.token, result.scored, finishes[chunk.id], prompt)

    def ended(self, finish: Finish, message: str) -> GenerationOutput:
        """The end without a token; what was held back of the text comes with it."""
        return GenerationOutput(self.request.id, text=self._rest(), finish=finish, message=message)

    def _sampling_row(self) -> SamplingRow:
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

    def _output(
        self,
        token: int,
        scored: TokenLogprobs | None,
        finish: Finish | None,
        prompt: tuple[TokenLogprobs, ...],
    ) -> GenerationOutput:
        self.tokens.append(token)
        stopped_by: str | int | None = None
        text = ""
        if finish is Finish.STOP:
            stopped_by = token
        else:
            piece = self._watched(self._detokeniser.add(token))
            text, stopped_by = piece.text, piece.stopped_by
            if stopped_by is not None or self._is_complete(token):
                finish = Finish.STOP
        if finish is not None and not isinstance(stopped_by, str):
            text += self._rest()
        return GenerationOutput(
            self.request.id, token, text, scored, finish, stopped_by,
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
        """Of the scores for positions `chunk.start + 1` on, those of the prompt that are new."""
        given = max(self._prompt_scored - (chunk.start + 1), 0)
        new = tuple(scores[given : len(self.request.prompt) - (chunk.start + 1)])
        self._prompt_scored += len(new)
        return new


def _seed(id: str) -> int:
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest())
