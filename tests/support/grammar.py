"""Tokenisers of both styles with a few hundred tokens, and random answers that follow a grammar."""

import random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from backends.llm.grammar.spec import Grammar
from backends.llm.tokens.tokeniser import Tokeniser

SPECIAL = ["<pad>", "<bos>", "<eos>"]
END = 2
WORDS = [
    '{"',
    '":',
    '",',
    '"}',
    '": ',
    ", ",
    "true",
    "false",
    "null",
    "name",
    "es",
    "ja",
    "no",
    "10",
]


def byte_level() -> Tokeniser:
    """GPT's and Qwen's way: a letter for each byte, a space is Ġ."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [word.replace(" ", "Ġ") for word in WORDS] + ["Ġ10", "Ã©"]
    tokenizer = _tokenizer([*SPECIAL, *alphabet, *words])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return Tokeniser(tokenizer)


def sentencepiece() -> Tokeniser:
    """Llama 2's and Gemma's way: a space is ▁, bytes without a letter are <0x..>."""
    letters = [chr(code) for code in range(33, 127)]
    words = [word.replace(" ", "▁") for word in WORDS] + ["▁10", "é", "▁"]
    tokenizer = _tokenizer(
        [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words]
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1),
        ]
    )
    return Tokeniser(tokenizer)


def _tokenizer(names: list[str]) -> Tokenizer:
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback="<0x00>" in vocabulary))
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def random_answer(grammar: Grammar, seed: int, longest: int = 400) -> tuple[list[int], bool]:
    """Tokens drawn evenly from those allowed, without the end; whether the answer came to one."""
    draw, tokens = random.Random(seed), list[int]()
    while len(tokens) < longest:
        allowed = grammar.allowed().nonzero().flatten().tolist()
        token = draw.choice(allowed)
        if token == END:
            return tokens, True
        tokens.append(token)
        if grammar.accept(token):
            return tokens, True
    return tokens, False
