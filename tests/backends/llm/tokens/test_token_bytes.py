"""The exact bytes of single tokens, for the vocabularies there are."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from backends.llm.tokens.tokeniser import Tokeniser

TEXT = "Füchse 🦊 \n\t jagen — naïve"


def byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def sentence_pieces() -> Tokenizer:
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "n", "a", "ve", "▁na"]
    vocabulary = {name: at for at, name in enumerate(names)}
    made = Tokenizer(
        models.BPE(vocabulary, [("▁", "n")][:0], unk_token="<unk>", byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


def test_byte_level_tokens_are_bytes() -> None:
    tokeniser = Tokeniser(byte_level())
    tokens = tokeniser.encode(TEXT)
    assert b"".join(map(tokeniser.bytes_of, tokens)) == TEXT.encode()
    assert max(map(len, map(tokeniser.bytes_of, tokens))) == 1


def test_sentence_pieces_have_spaces_and_bytes() -> None:
    tokeniser = Tokeniser(sentence_pieces())
    tokens = tokeniser.encode(TEXT)
    assert b"".join(map(tokeniser.bytes_of, tokens)) == b" " + TEXT.encode()


def test_special_tokens_are_their_names_and_unknown_ones_nothing() -> None:
    made = byte_level()
    made.add_special_tokens([AddedToken("<|ü|>", special=True)])
    tokeniser = Tokeniser(made)
    (token,) = tokeniser.encode("<|ü|>")
    assert tokeniser.bytes_of(token) == "<|ü|>".encode()
    assert tokeniser.bytes_of(10_000) == b""


def test_every_text_is_the_same_tokens_as_the_tokenizer_itself_says() -> None:
    made = byte_level()
    assert Tokeniser(made).encode(TEXT) == made.encode(TEXT).ids
