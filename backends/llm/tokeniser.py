"""A checkpoint's tokenizer.json: text to tokens and back, with the tokens' own names."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from backends.llm.errors import BadCheckpoint
from backends.llm.token_bytes import TokenBytes
from backends.llm.token_table import TokenTable, tabulated

FILE = "tokenizer.json"
MAX_BYTES = 1 << 28

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else it warns in every child we start


class Tokeniser:
    """Text to tokens and back. May be used by several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = TokenBytes(tokenizer)
        added = tokenizer.get_added_tokens_decoder().items()
        self.added = {one.content: token for token, one in added}
        """Tokens by their texts, which no others stand for."""
        self.specials = {one.content: token for token, one in added if one.special}
        """Those of them that `skip_special` leaves out."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text; `special` adds what the model wants around it, such as its first
        token (a chat template has that in its text already)."""
        # Only the calls for batches let other threads run: 3 MB of text stalled them for 7 s.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of tokens; U+FFFD for bytes that are not UTF-8, or not yet."""
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=skip_special)
        return text

    def name(self, token: int) -> str:
        """A token as the vocabulary writes it; empty if it is not in there."""
        return self._tokenizer.id_to_token(token) or ""

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to a text: bytes, which need not be whole characters."""
        return self._bytes.of(token)

    def table(self, vocabulary: int) -> TokenTable:
        """What every token adds to a text, of a model that knows `vocabulary` tokens; 0.4 s for
        150,000."""
        count = max(vocabulary, self._tokenizer.get_vocab_size(with_added_tokens=True))
        return tabulated(map(self._bytes.of, range(count)))

    @property
    def size(self) -> int:
        """One more than the largest token; some time for a large vocabulary."""
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def to_json(self) -> str:
        """The whole tokenizer.json, without padding and truncation."""
        written: dict[str, Any] = json.loads(self._tokenizer.to_str())
        return json.dumps(written | {"padding": None, "truncation": None})


def read_tokeniser(folder: Path) -> Tokeniser:
    """Raises BadCheckpoint naming the file."""
    path = folder / FILE
    if not path.is_file():
        raise BadCheckpoint(f"there is no {FILE} beside the weights")
    if path.stat().st_size > MAX_BYTES:
        raise BadCheckpoint(f"{FILE} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return Tokeniser(Tokenizer.from_file(str(path)))
    except Exception as error:  # noqa: BLE001 (the binding raises plain Exception)
        raise BadCheckpoint(f"{FILE} cannot be read: {error}") from None
