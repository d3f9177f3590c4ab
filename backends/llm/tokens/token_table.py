"""What each token adds to a text, without the tokeniser that knows: two runs of bytes to send.

Building a tokeniser of 150,000 tokens takes half a second in which no other thread runs, and
100 MB; a gateway has this instead, and asks an engine for the rest.
"""

from array import array
from collections.abc import Iterable
from itertools import accumulate


class TokenTable:
    """`ends`: where each token's bytes end in `letters`, as array("I")."""

    def __init__(self, ends: bytes = b"", letters: bytes = b"") -> None:
        self.ends = ends
        self.letters = letters
        self._ends = memoryview(ends).cast("I")

    def bytes_of(self, token: int) -> bytes:
        """Empty for a token that is not in the table."""
        if not 0 <= token < len(self._ends):
            return b""
        return self.letters[self._ends[token - 1] if token else 0 : self._ends[token]]


def tabulated(tokens: Iterable[bytes]) -> TokenTable:
    """The table of what the tokens 0, 1, 2, … add."""
    found = list(tokens)
    return TokenTable(array("I", accumulate(map(len, found))).tobytes(), b"".join(found))
