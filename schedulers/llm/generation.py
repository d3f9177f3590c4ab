"""What a caller asks the engine for and what it gets back: the same two values from the front end
to the engine's process and back, text included. Pure.

A front end puts them into an InferRequest's parameters and finds them in those of the responses,
under the names below. They are Python objects, which no wire's parameter ever is; the scheduler
looks at their type.
"""

from enum import Enum

from msgspec import Struct

from backends.llm.grammar.spec import GrammarSpec
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.token_logprobs import TokenLogprobs

NEVER = float("inf")

GENERATE = "llm.generate"
"""request.parameters[GENERATE]: tuple[GenerateRequest, ...], one for each answer, with ids of their
own; the scheduler sets each one's principal, salt and deadline. The Reply ends when all have."""

OUTPUT = "llm.output"
"""response.parameters[OUTPUT]: (index of the request in the tuple, its Output)."""

EMBED = "llm.embed"
"""request.parameters[EMBED]: tuple[tuple[int, ...], ...], lists of tokens. One response, with the
output `backends.llm.backend.EMBEDDING`."""


class Finish(Enum):
    """Why a sequence ended. INVALID: the request itself cannot be followed."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAILED = "failed"
    INVALID = "invalid"


class GenerateRequest(Struct, frozen=True, array_like=True):
    """One answer to one prompt.

    `prompt`: tokens. `stop`: strings that end the answer and are not part of it. `stop_ids`: tokens
    that do. `ignore_end`: the model's own end tokens do not end it. `min_tokens`: nothing but the
    limit ends it before. `seed`: None takes one from the request's id. `prompt_logprobs`: None, or
    how many likeliest tokens to report for each prompt token; the prompt is then computed without
    the prefix cache. `grammar`: what the answer must look like; the request waits while it is
    compiled, and one that cannot be fails its own request. `shown`: special tokens, as text, that
    `skip_special` does not leave out. `priority`: smaller is served first. `deadline_s`: on the
    clock that the scheduler is given. `salt`: sequences share cached blocks only with those of the
    same salt.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_end: bool = False
    seed: int | None = None
    prompt_logprobs: int | None = None
    skip_special: bool = True
    principal: str = ""
    priority: int = 0
    deadline_s: float = NEVER
    salt: bytes = b""
    grammar: GrammarSpec | None = None
    shown: tuple[str, ...] = ()

    @property
    def reads_cache(self) -> bool:
        """Whether its prompt may come from the prefix cache."""
        return self.prompt_logprobs is None


class GenerationOutput(Struct, frozen=True, array_like=True):
    """What a step brought for one request.

    `token` None: only the end, or only prompt log-probabilities. `text`: what became
    certain; it may lag behind the tokens. `stopped_by`: the stop string or token that ended the
    answer. `prompt`: log-probabilities of prompt tokens, in order, from the second token on; each
    comes once. `cached_tokens`: how many prompt tokens came from the prefix cache.
    """

    id: str
    token: int | None = None
    text: str = ""
    scored: TokenLogprobs | None = None
    finish: Finish | None = None
    stopped_by: str | int | None = None
    message: str = ""
    prompt: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
