"""Passwords: accepted, hashed, compared."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from argon2 import PasswordHasher

from control.access import passwords
from control.access.passwords import (
    check_password_text,
    hash_password,
    is_outdated,
    matches,
)
from control.errors import Invalid, TooMany

PASSWORD = "correct horse battery"
HASHED = hash_password(PASSWORD)


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> None:
    """None here: these tests are about the cost itself."""


@pytest.mark.parametrize("password", ["x" * 12, "x" * 1024, "пароль на русском", "\ud800" * 12])
def test_a_long_enough_text_can_be_a_password(password: str) -> None:
    check_password_text("ada", password)


@pytest.mark.parametrize("password", ["", "x" * 11, "x" * 1025, "Augusta.Ada.Byron"])
def test_a_short_or_long_one_or_the_name_cannot(password: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_password_text("augusta.ada.byron", password)
    assert refused.value.field == "password"
    assert password not in str(refused.value) or not password


def test_only_the_password_matches_its_hash_which_is_salted() -> None:
    assert matches(HASHED, PASSWORD)
    assert not matches(HASHED, PASSWORD + " ")
    assert hash_password(PASSWORD) != HASHED


def test_even_a_text_that_is_no_unicode_can_be_compared() -> None:
    assert not matches(HASHED, "\ud800")


def test_nobodys_password_never_matches_and_costs_as_much() -> None:
    assert not matches(None, "nobody's password")

    def cost(hashed: str | None) -> float:
        began = time.process_time()
        assert not matches(hashed, "another password")
        return time.process_time() - began

    known = min(cost(HASHED) for _ in range(5))
    unknown = min(cost(None) for _ in range(5))
    assert 0.2 < unknown / known < 5  # not looking at all would be a thousandth


def test_a_hash_of_other_parameters_is_outdated_but_matches() -> None:
    old = PasswordHasher(time_cost=1, memory_cost=1024).hash(PASSWORD)
    assert is_outdated(old)
    assert matches(old, PASSWORD)
    assert not is_outdated(HASHED)


def test_too_many_at_once_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "WAIT_S", 0.001)
    outcomes = []

    def attempt(_: int) -> None:
        try:
            outcomes.append(matches(HASHED, PASSWORD))
        except TooMany as error:
            outcomes.append(error.retry_after_s > 0)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(attempt, range(16)))
    assert outcomes == [True] * 16
    monkeypatch.undo()
    assert matches(HASHED, PASSWORD), "every place was given back"
