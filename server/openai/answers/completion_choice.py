"""One answer as it comes in, and the counts of tokens of several. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from backends.llm.sampling.token_logprobs import TokenLogprobs
from schedulers.llm.generation import Finish, GenerationOutput


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Tokens of the prompt whose state was kept from an earlier one."""

    cached_tokens: int


class CompletionUsage(msgspec.Struct, frozen=True):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


@dataclass(slots=True)
class CompletionChoice:
    """`prompt`: its tokens, the same for as many answers as were asked for. `silent`: what is
    generated is not wanted. `keeps_scores`: not where each is written as it comes. `scores`: of the
    answer's tokens, `prompt_scores` of the prompt's from the second one on; both only where they
    were asked for. `opened`: what stands before its first piece has been written."""

    prompt: tuple[int, ...]
    silent: bool = False
    keeps_scores: bool = True
    pieces: list[str] = field(default_factory=list)
    scores: list[tuple[int, TokenLogprobs]] = field(default_factory=list)
    prompt_scores: list[TokenLogprobs] = field(default_factory=list)
    tokens: int = 0
    cached: int = 0
    finish: Finish | None = None
    stopped_by: str | int | None = None
    opened: bool = False

    @property
    def begun(self) -> bool:
        """Whether a token or the end has come."""
        return self.tokens > 0 or self.finish is not None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def finish_reason(self) -> str | None:
        return None if self.finish is None else self.finish.value

    def add(self, output: GenerationOutput) -> None:
        self.prompt_scores += output.prompt
        self.cached = output.cached_tokens or self.cached
        self.finish = output.finish
        self.stopped_by = output.stopped_by
        if self.silent:  # of the one token that was made for it nothing is told, nor that it ends
            self.finish = Finish.LENGTH if output.finish is Finish.STOP else output.finish
            self.stopped_by = None
            return
        if output.text:
            self.pieces.append(output.text)
        if output.token is not None:
            self.tokens += 1
            if output.scored is not None and self.keeps_scores:
                self.scores.append((output.token, output.scored))


def usage(answers: Sequence[CompletionChoice], count: int) -> CompletionUsage:
    """OpenAI's counts; a prompt counts once, however many answers (`count`) it has."""
    prompts = answers[::count]
    prompt = sum(len(one.prompt) for one in prompts)
    completion = sum(one.tokens for one in answers)
    cached = PromptTokensDetails(sum(one.cached for one in prompts))
    return CompletionUsage(prompt, completion, prompt + completion, cached)
