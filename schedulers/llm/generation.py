"""What a caller asks the engine for and what it gets back: the same two values from the front end
to the engine's process and back, text included.

A front end puts them into an InferRequest's parameters and finds them in those of the responses,
under the names below. They are Python objects, which no wire's parameter ever is; the scheduler
looks at their type.
"""

from msgspec import Struct

from backends.llm.grammar.spec import GrammarKind, GrammarSpec
from backends.llm.sampling.token_logprobs import TokenLogprobs
from schedulers.llm.request import Finish, GenerateRequest

__all__ = [
    "EMBED",
    "GENERATE",
    "OUTPUT",
    "GenerateRequest",
    "GenerationOutput",
    "GrammarKind",
    "GrammarSpec",
]

GENERATE = "llm.generate"
"""request.parameters[GENERATE]: tuple[GenerateRequest, ...], one for each answer, with ids of their
own; the scheduler sets each one's principal, salt and deadline. The Reply ends when all have."""

OUTPUT = "llm.output"
"""response.parameters[OUTPUT]: (index of the request in the tuple, its Output)."""

EMBED = "llm.embed"
"""request.parameters[EMBED]: tuple[tuple[int, ...], ...], lists of tokens. One response, with the
output `backends.llm.backend.EMBEDDING`."""


class GenerationOutput(Struct, frozen=True, array_like=True):
    """What a step brought for one request.

    `token` None: only the end, or only prompt log-probabilities, are told. `text`: what became
    certain; it may lag behind the tokens. `stopped_by`: the stop string or token that ended the
    answer. `prompt`: log-probabilities of prompt tokens, in order, from the second token on; each
    is told once. `cached_tokens`: how many prompt tokens came from the prefix cache.
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
