"""A request for tokens, and what has become of it so far. Pure."""

from array import array
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from msgspec import Struct

from backends.llm.grammar.spec import GrammarSpec
from backends.llm.sampling.params import SamplingParams

NEVER = float("inf")
DIGEST_BYTES = 16


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


@dataclass(slots=True, eq=False)
class LLMSequence:
    """A request that was taken in; owned by its Scheduler, which alone changes it.

    `tokens`: the prompt and what was generated. `computed`: how many of them have their keys and
    values in `blocks`. `stop_ids`: tokens that end the answer after the first `min_tokens`.
    `order`: its place in the order of arrival. `held`: not to be admitted yet.
    `passed_by`: tokens of those that were admitted before it though they came after it.
    """

    request: GenerateRequest
    order: int
    arrived_s: float
    stop_ids: frozenset[int] = frozenset()
    held: bool = False
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    named: int = 0
    preemptions: int = 0
    passed_by: int = 0
    _digests: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the one to be served first to the front, the first victim to the back."""
        return (self.request.priority, self.order)

    def digests(self, block_tokens: int, tokens: int) -> Series[bytes]:
        """The digests of the full blocks within the first `tokens` tokens: names to find their
        cached keys and values by, each of which covers everything before it."""
        full = tokens // block_tokens
        while len(self._digests) < full:
            start = len(self._digests) * block_tokens
            previous = self._digests[-1] if self._digests else root_digest(self.request.salt)
            self._digests.append(next_digest(previous, self.tokens[start : start + block_tokens]))
        return self._digests[:full]

    def append(self, token: int) -> Finish | None:
        """Take a sampled token; why the sequence is now over, or None."""
        self.tokens.append(token)
        if self.generated > self.request.min_tokens and token in self.stop_ids:
            return Finish.STOP
        if self.generated >= self.request.max_tokens:
            return Finish.LENGTH
        return None


def root_digest(salt: bytes) -> bytes:
    """The digest a chain starts from; sequences with different salts never share a block."""
    return blake2b(salt, digest_size=DIGEST_BYTES, person=b"modelyard prefix").digest()


def next_digest(previous: bytes, tokens: Series[int]) -> bytes:
    """The digest of a full block that follows the block named `previous`."""
    return blake2b(array("I", tokens).tobytes(), digest_size=DIGEST_BYTES, key=previous).digest()
