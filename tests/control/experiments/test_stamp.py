"""A stamp is read as it was written, only by whoever has the key, and costs little to write."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.errors import Invalid
from control.experiments.stamp import (
    LASTS_S,
    NO_UNIT,
    SKEW_S,
    ArmIdentity,
    Stamp,
    Stamper,
    key_of,
    read,
    unit_key,
)

KEY = key_of(b"secret of the database")
ROUTE = ArmIdentity("digits", "candidate", "digits", 7, "0123456789abcdefghij")
NOW = 1_795_000_000.5

names = st.text(max_size=60).filter(lambda text: text.isprintable() and len(text.encode()) < 256)


@given(names, names, names, st.integers(0, 2**63), names, st.text(st.characters(), max_size=20))
def test_what_was_stamped_is_read(
    route: str, arm: str, model: str, version: int, subject: str, unit: str
) -> None:
    stamped = ArmIdentity(route, arm, model, version, subject)
    text = Stamper(KEY, stamped).sign(unit_key(unit), NOW)
    assert read(KEY, text, NOW) == Stamp(stamped, unit_key(unit).hex(), int(NOW))
    assert text.isascii()
    assert not set("+/= \n") & set(text)


def test_a_stamp_without_a_unit_says_so() -> None:
    assert read(KEY, Stamper(KEY, ROUTE).sign(NO_UNIT, NOW), NOW).unit == ""


def test_no_character_of_a_stamp_can_be_changed() -> None:
    text = Stamper(KEY, ROUTE).sign(unit_key("ada"), NOW)
    for place in range(len(text)):
        for other in "Aa0-_.":
            changed = text[:place] + other + text[place + 1 :]
            if changed != text:
                with pytest.raises(Invalid, match="the stamp"):
                    read(KEY, changed, NOW)


@pytest.mark.parametrize("text", ["", ".", "a.b", "ä.ö", "a" * 3_000 + ".b", "a", "\0.\0", "...."])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="the stamp") as refused:
        read(KEY, text, NOW)
    assert refused.value.field == "stamp"


def test_another_databases_stamp_is_refused() -> None:
    text = Stamper(key_of(b"another"), ROUTE).sign(unit_key("ada"), NOW)
    with pytest.raises(Invalid, match="was not signed by this server"):
        read(KEY, text, NOW)


def test_a_stamp_of_long_ago_or_of_the_future_is_refused() -> None:
    text = Stamper(KEY, ROUTE).sign(unit_key("ada"), NOW)
    for good in NOW + LASTS_S - 1, NOW - SKEW_S + 1:
        assert read(KEY, text, good).route == ROUTE
    for bad in NOW + LASTS_S + 1, NOW - SKEW_S - 1:
        with pytest.raises(Invalid, match="older than 90 days, or of the future"):
            read(KEY, text, bad)


def test_a_name_that_does_not_fit_is_refused_when_the_stamper_is_made() -> None:
    with pytest.raises(ValueError, match="at most 255 bytes"):
        Stamper(KEY, ArmIdentity("x" * 256, "a", "m", 1))


def test_stamping_costs_a_few_microseconds() -> None:
    stamper, rounds = Stamper(KEY, ROUTE), 5_000
    costs = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(rounds):
            stamper.sign(unit_key("user-12345"), NOW)
        costs.append((time.process_time() - began) / rounds)
    print(f"{min(costs) * 1e6:.2f} µs")
    assert min(costs) < 100e-6  # 4 on an idle machine
