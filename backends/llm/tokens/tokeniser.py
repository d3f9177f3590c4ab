"""A checkpoint's tokenizer.json: text to tokens and back, with the tokens' own names."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers

from backends.llm.chat.control_text import MARK, markers_among
from backends.llm.config.sentences import reads_lowercase
from backends.llm.errors import BadCheckpoint
from backends.llm.tokens.token_bytes import TokenBytes
from backends.llm.tokens.token_table import TokenTable, tabulated

FILE = "tokenizer.json"
MAX_BYTES = 1 << 28

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else it warns in every child we start


class Tokeniser:
    """Text to tokens and back. May be used by several threads.

    The padding and truncation that a tokenizer.json stores are switched off, as transformers and
    vLLM do: they are what its author last trained with. Applied, they would cut prompts in silence,
    and add tokens to texts that the model then attends to.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._bytes = TokenBytes(tokenizer)
        added = tokenizer.get_added_tokens_decoder().items()
        self.added = {one.content: token for token, one in added}
        """Tokens by their texts, which no others stand for."""
        self.specials = {one.content: token for token, one in added if one.special}
        """Those of them that `skip_special` leaves out."""
        self.markers = markers_among(one.content for _, one in added if not one.special)
        """Those that structure a chat without being called special."""
        self._cutting: Tokenizer | None = None
        self._making = threading.Lock()

    def encode(self, text: str, *, special: bool = True, marked: bool = False) -> list[int]:
        """Tokens of a text; `special` adds what the model wants around it, such as its first
        token (a chat template has that in its text already). `marked`: the marks of
        `backends.llm.chat.control_text` are left out, and no token reaches over one."""
        if marked and MARK in text:
            return self._encode_marked(text, special)
        # Only the calls for batches let other threads run: 3 MB of text stalled them for 7 s.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def _encode_marked(self, text: str, special: bool) -> list[int]:
        """By a tokeniser to which the mark is one more token: text behind it is not taken for the
        beginning of a text, to which some would add a space. Made when first needed: half a second
        and the memory of a vocabulary."""
        with self._making:
            if self._cutting is None:
                cutting = Tokenizer.from_str(self.to_json())
                cutting.add_special_tokens([AddedToken(MARK, special=True, normalized=False)])
                self._cutting = cutting
        (encoding,) = self._cutting.encode_batch_fast([text], add_special_tokens=special)
        mark = self._cutting.token_to_id(MARK)
        return [token for token in encoding.ids if token != mark]

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
        written: str = self._tokenizer.to_str()
        return written


def read_tokeniser(folder: Path) -> Tokeniser:
    """The tokeniser of a checkpoint, lower case where its `sentence_bert_config.json` says so.
    Raises BadCheckpoint naming the file."""
    path = folder / FILE
    if not path.is_file():
        raise BadCheckpoint(f"there is no {FILE} beside the weights")
    if path.stat().st_size > MAX_BYTES:
        raise BadCheckpoint(f"{FILE} is larger than {MAX_BYTES >> 20} MiB")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:  # noqa: BLE001 (the binding raises Exception, or panics)
        raise BadCheckpoint(f"{FILE} cannot be read: {error}") from None
    if reads_lowercase(folder):
        before = [normalizers.Lowercase()]
        after = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([*before, *after])
    return Tokeniser(tokenizer)
