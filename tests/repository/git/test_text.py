"""Strangers' text, made plain."""

import pytest

from repository.git.text import plain_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a plain größe 模型", "a plain größe 模型"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("one\r\ntwo\tthree\u2028four", "one two three four"),
        ("bell\x07 back\x08 nul\x00", "bell back nul"),
        ("right\u202eleft", "rightleft"),
        ("caf\udce9", "caf\ufffd"),
        (b"caf\xe9", "caf\ufffd"),
        ("  spaced ", "spaced"),
        ("", ""),
    ],
)
def test_text_is_one_printable_line(text: str | bytes, plain: str):
    assert plain_text(text) == plain


def test_long_text_is_cut():
    assert plain_text("x" * 20, 10) == "x" * 9 + "…"
    assert len(plain_text("\x1b[31m" * 10**6, 10)) == 0


def test_an_endless_escape_costs_no_time():
    assert plain_text("\x1b[" + "0;" * 10**6, 100) == ""
