"""A request for tokens that was taken in, and what has become of it so far. Pure."""

from array import array
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from hashlib import blake2b

from schedulers.llm.generation import Finish, GenerateRequest

DIGEST_BYTES = 16


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
    registered: int = 0
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
