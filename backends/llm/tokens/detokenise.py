"""Text as it becomes certain: whole characters only, and nothing that may yet be a stop string."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from backends.llm.tokens.tokeniser import Tokeniser

UNFINISHED = "�"
PATIENCE = 8
"""Tokens waited for to complete a character; four bytes of one token each are the most it takes."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text to give out now; `stopped_by`: the stop string that ended the answer, if one did."""

    text: str
    stopped_by: str | None = None


class Detokeniser:
    """The tokens of one answer, turned into text as they come.

    A token's text depends on the one before (a leading space, bytes of one character), so a few
    tokens that were given out already are decoded again with the new ones, and the difference is
    what is new.

    `skip_special` leaves special tokens out, but for those whose texts are `shown`.
    """

    def __init__(
        self, tokeniser: Tokeniser, skip_special: bool = True, shown: Collection[str] = ()
    ) -> None:
        self._tokeniser = tokeniser
        specials = tokeniser.specials
        kept = {specials[one] for one in shown if one in specials} if skip_special else set()
        self._hidden = frozenset(specials.values()) - kept if kept else frozenset()
        self._skip_special = skip_special and not kept
        self._tokens: list[int] = []
        self._known = 0

    def add(self, token: int) -> str:
        """The text that became certain with this token; often empty."""
        if token in self._hidden:
            return ""
        self._tokens.append(token)
        return self._advance(force=len(self._tokens) - self._known > PATIENCE)

    def flush(self) -> str:
        """What is left at the end, unfinished characters included."""
        return self._advance(force=True)

    def _advance(self, force: bool) -> str:
        before = self._decode(self._tokens[: self._known])
        text = self._decode(self._tokens)
        if len(text) <= len(before) or (text.endswith(UNFINISHED) and not force):
            return ""
        # What was known before stays as context for the next token; older tokens are forgotten.
        del self._tokens[: self._known]
        self._known = len(self._tokens)
        return text[len(before) :]

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._tokeniser.decode(tokens, skip_special=self._skip_special) if tokens else ""


class StopStrings:
    """Watches text for strings that end an answer; they themselves are not given out."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty string, which would end every answer at once."""
        if not all(stops):
            raise ValueError("a stop string is empty; give at least one character")
        self._stops = tuple(stops)
        self._held = ""

    def add(self, text: str) -> TextPiece:
        """Text that no stop string can begin in any more, or the text before one."""
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            return TextPiece(self._take(at), stop)
        return TextPiece(self._take(len(self._held) - self._maybe_begun()))

    def flush(self) -> str:
        """What was held back, when no more comes."""
        return self._take(len(self._held))

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _maybe_begun(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
