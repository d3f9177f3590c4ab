"""Which token a header shows."""

import base64

import pytest

from server.access.credentials import LONGEST_BYTES, authorization_in, token_in


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer myd_abc", b"myd_abc"),
        (b"bearer   myd_abc ", b"myd_abc"),
        (basic("anybody:myd_abc"), b"myd_abc"),
        (basic(":a:b"), b"a:b"),
        ("Bearer " + "x" * LONGEST_BYTES, b"x" * LONGEST_BYTES),
    ],
)
def test_the_token_of_a_header_is_found(header: bytes | str, token: bytes) -> None:
    assert token_in(header) == token


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "myd_abc",
        "Token myd_abc",
        "Basic %%%",
        basic("only-a-user"),
        "Basic " + "é",
        "Bearer " + "x" * (LONGEST_BYTES + 1),
    ],
)
def test_what_is_no_token_is_none(header: str | None) -> None:
    assert token_in(header) == b""


def test_the_first_header_of_that_name_counts() -> None:
    assert authorization_in([(b"host", b"h")]) is None
    headers = [(b"a", b"b"), (b"authorization", b"one"), (b"authorization", b"two")]
    assert authorization_in(headers) == b"one"
