"""What tokens add to a text is the same by the table as by the tokeniser."""

import pytest

from backends.llm.tokens.token_table import TokenTable, tabulated
from backends.llm.tokens.tokeniser import Tokeniser
from support.grammar import byte_level, sentencepiece


@pytest.mark.parametrize("make", [byte_level, sentencepiece], ids=["byte-level", "sentencepiece"])
def test_the_table_has_the_bytes_of_every_token_and_of_no_other(make: object) -> None:
    assert callable(make)
    tokeniser: Tokeniser = make()
    table = tokeniser.table(10)
    sent = TokenTable(table.ends, table.letters)
    tokens = range(tokeniser.size + 20)
    assert [sent.bytes_of(token) for token in tokens] == [*map(tokeniser.bytes_of, tokens)]


def test_tokens_that_the_tokeniser_does_not_have_add_nothing() -> None:
    table = byte_level().table(100_000)
    assert len(table.ends) == 400_000
    assert (table.bytes_of(99_999), table.bytes_of(100_000), table.bytes_of(-1)) == (b"",) * 3


def test_an_empty_table_knows_no_token() -> None:
    assert TokenTable().bytes_of(0) == tabulated([]).bytes_of(0) == b""
