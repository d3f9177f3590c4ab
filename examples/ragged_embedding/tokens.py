"""Texts to tokens: a number for each word, which needs no list of words."""

import re
from zlib import crc32

VOCABULARY = 4096


def tokens_of(text: str) -> list[int]:
    """One id below VOCABULARY a word, whatever its case; at least one, for no words at all."""
    words = re.findall(r"\w+", text.lower()) or [""]
    return [crc32(word.encode()) % VOCABULARY for word in words]
