"""Tokens of transfers."""

from dataclasses import replace

import pytest

from repository.lfs.errors import BadToken
from repository.lfs.tokens import LfsTokenScope, check, sign

KEY = b"k" * 32
OID = "ab" * 32
SCOPE = LfsTokenScope("upload", "digits", OID, 1234)
NOW = 1_800_000_000.5


def test_a_token_says_what_it_allows():
    token = sign(KEY, SCOPE, NOW)
    assert check(KEY, token, "upload", "digits", OID, NOW + 3599) == SCOPE
    assert token.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_an_expired_token_is_refused():
    token = sign(KEY, SCOPE, NOW, lifetime_s=60)
    with pytest.raises(BadToken, match="expired"):
        check(KEY, token, "upload", "digits", OID, NOW + 60)


@pytest.mark.parametrize(
    "other",
    [
        replace(SCOPE, operation="download"),
        replace(SCOPE, repository="other"),
        replace(SCOPE, oid="cd" * 32),
    ],
)
def test_a_token_for_something_else_is_refused(other: LfsTokenScope):
    with pytest.raises(BadToken, match="not for upload"):
        check(KEY, sign(KEY, other, NOW), "upload", "digits", OID, NOW)


def test_a_token_of_another_key_is_refused():
    with pytest.raises(BadToken, match="not a token of this server"):
        check(b"x" * 32, sign(KEY, SCOPE, NOW), "upload", "digits", OID, NOW)


def test_every_changed_character_is_noticed():
    token = sign(KEY, SCOPE, NOW)
    for place in range(len(token) - 1):  # the last one has bits that base64 does not use
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(BadToken):
            check(KEY, changed, "upload", "digits", OID, NOW)


@pytest.mark.parametrize("token", ["", ".", "a.b", "ü.ü", "=.=", "a" * 10_000, "a.b.c", "\0.\0"])
def test_what_is_no_token_is_refused(token: str):
    with pytest.raises(BadToken, match="not a token of this server"):
        check(KEY, token, "upload", "digits", OID, NOW)


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="at least 32"):
        sign(b"short", SCOPE, NOW)
