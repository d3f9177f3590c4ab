"""The bytes a single token stands for, exactly; a decoder's text of it may be half a character."""

import json
import re
from typing import Any

from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "▁"


class TokenBytes:
    """Reads tokens as the tokenizer's decoder does: byte-level (GPT-2, Llama 3, Qwen), or pieces
    with `▁` for a space and `<0xHH>` for a byte (SentencePiece)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._is_byte_level = "ByteLevel" in _kinds(_decoder_of(tokenizer))
        self._added = frozenset(tokenizer.get_added_tokens_decoder())

    def of(self, token: int) -> bytes:
        """Empty for a token that is not in the vocabulary."""
        name: str = self._tokenizer.id_to_token(token) or ""
        if token in self._added:
            return name.encode()
        if self._is_byte_level:
            return _from_letters(name)
        if found := _BYTE.fullmatch(name):
            return bytes.fromhex(found[1])
        return name.replace(_SPACE, " ").encode()


def _decoder_of(tokenizer: Tokenizer) -> Any:
    decoder = tokenizer.decoder
    return {} if decoder is None else json.loads(decoder.__getstate__())


def _kinds(decoder: dict[str, Any]) -> set[str]:
    """The types of a decoder and of those it is made of."""
    found = {str(decoder.get("type"))}
    for one in decoder.get("decoders") or ():
        found |= _kinds(one)
    return found


def _letters() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for what follows."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + at): byte for at, byte in enumerate(others)
    }


_LETTERS = _letters()


def _from_letters(name: str) -> bytes:
    try:
        return bytes(_LETTERS[letter] for letter in name)
    except KeyError:
        return name.encode()
