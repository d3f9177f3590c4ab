"""Text in pieces is the text as a whole, and stop strings are never seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from backends.llm.tokens.detokenise import Detokeniser, StopStrings
from backends.llm.tokens.tokeniser import Tokeniser


def byte_tokeniser() -> Tokeniser:
    """One token per byte: every character beyond ASCII is several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return Tokeniser(tokenizer)


def space_tokeniser() -> Tokeniser:
    """Llama's way: a token carries the space before it, and the first one loses it."""
    words = ["▁the", "▁house", "s", "▁", "ü", "<unk>"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    return Tokeniser(tokenizer)


BYTES = byte_tokeniser()


def pieces(tokeniser: Tokeniser, tokens: list[int]) -> list[str]:
    detokeniser = Detokeniser(tokeniser)
    return [*map(detokeniser.add, tokens), detokeniser.flush()]


@settings(deadline=None)
@given(st.text(max_size=40))
def test_pieces_add_up_to_the_text(text: str) -> None:
    tokens = BYTES.encode(text)
    assert "".join(pieces(BYTES, tokens)) == text


def test_a_character_is_given_out_whole() -> None:
    assert pieces(BYTES, BYTES.encode("a🦜b")) == ["a", "", "", "", "🦜", "b", ""]


def test_spaces_between_words_stay_where_they_are() -> None:
    assert "".join(pieces(space_tokeniser(), [0, 1, 2, 0, 1])) == "the houses the house"


def test_bytes_that_never_become_a_character_are_given_out_in_the_end() -> None:
    broken = [BYTES.encode("é")[0]] * 30
    assert set("".join(pieces(BYTES, broken))) == {"�"}


def test_a_stop_string_across_pieces_is_never_seen() -> None:
    stops = StopStrings(["END", "\n\n"])
    given_out = [stops.add(piece) for piece in ("on E", "NE", "ND, and on")]
    assert [one.text for one in given_out[:3]] == ["on ", "EN", ""]
    assert given_out[2].stopped_by == "END"


def test_what_was_held_back_comes_at_the_end() -> None:
    stops = StopStrings(["stop"])
    assert stops.add("do not sto").text == "do not "
    assert stops.flush() == "sto"


def test_the_first_stop_string_in_the_text_counts() -> None:
    piece = StopStrings(["b", "a"]).add("xxab")
    assert (piece.text, piece.stopped_by) == ("xx", "a")


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="stop string is empty"):
        StopStrings(["x", ""])


@settings(deadline=None)
@given(st.text("ab", max_size=20), st.lists(st.integers(1, 4), max_size=20))
def test_any_cutting_of_the_text_stops_at_the_same_place(text: str, cuts: list[int]) -> None:
    whole = StopStrings(["aab"]).add(text)
    stops, seen = StopStrings(["aab"]), ""
    for cut in [*cuts, len(text)]:
        piece = stops.add(text[:cut])
        text, seen = text[cut:], seen + piece.text
        if piece.stopped_by:
            break
    assert seen == whole.text
