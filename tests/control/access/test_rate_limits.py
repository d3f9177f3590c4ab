"""Who asks or guesses too often; time is an argument."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.access.rate_limits import LoginThrottle, RateBucket, RateLimiter, network_of
from support.costs import costs_less_than


def test_a_burst_passes_and_the_next_one_waits_as_long_as_it_is_told() -> None:
    bucket = RateBucket()
    assert [bucket.take(10, 3, now=100.0) for _ in range(3)] == [0.0] * 3
    wait = bucket.take(10, 3, now=100.0)
    assert wait == pytest.approx(0.1)
    assert bucket.take(10, 3, now=100.0 + wait) == 0.0
    assert bucket.take(10, 3, now=100.0 + wait) == pytest.approx(0.1)


def test_a_refusal_takes_nothing() -> None:
    bucket = RateBucket()
    bucket.take(1, 1, now=0.0)
    assert [bucket.take(1, 1, now=0.5) for _ in range(100)] == [pytest.approx(0.5)] * 100


def test_rest_saves_up_a_burst_and_no_more() -> None:
    bucket = RateBucket()
    for _ in range(5):
        bucket.take(1, 5, now=0.0)
    passed = [bucket.take(1, 5, now=1e6) for _ in range(6)]
    assert passed == [0.0] * 5 + [pytest.approx(1.0)]


def test_what_costs_more_than_a_burst_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    bucket = RateBucket()
    assert bucket.take(1, 2, now=0.0) == 0.0
    assert bucket.take(1, 2, now=0.0, cost=10) == pytest.approx(1.0)
    assert bucket.take(1, 2, now=1.0, cost=10) == 0.0
    assert bucket.take(1, 2, now=1.0) == pytest.approx(9.0)


@given(
    rate=st.floats(0.01, 1e6),
    burst=st.integers(1, 1000),
    gaps=st.lists(st.floats(0, 10), min_size=1, max_size=200),
)
def test_never_more_pass_than_a_burst_and_what_came_in_since(
    rate: float, burst: int, gaps: list[float]
) -> None:
    bucket, now, passed = RateBucket(), 1000.0, 0
    for gap in gaps:
        now += gap
        passed += bucket.take(rate, burst, now) == 0.0
        assert passed <= burst + (now - 1000.0) * rate * 1.001 + 1e-3 + len(gaps) * rate * 1e-6


@given(rate=st.floats(0.01, 1e6), burst=st.integers(1, 1000), now=st.floats(0, 1e7))
def test_who_waits_as_told_always_passes(rate: float, burst: int, now: float) -> None:
    bucket = RateBucket()
    for _ in range(burst + 20):
        now += bucket.take(rate, burst, now)
        wait = bucket.take(rate, burst, now)
        assert wait == 0.0 or bucket.take(rate, burst, now + wait) == 0.0


def test_each_key_has_a_bucket_of_its_own() -> None:
    rates = RateLimiter()
    assert rates.take("a", 1, 1, now=0.0) == 0.0
    assert rates.take("a", 1, 1, now=0.0) > 0.0
    assert rates.take("b", 1, 1, now=0.0) == 0.0


def test_there_are_never_more_keys_than_allowed() -> None:
    rates = RateLimiter(most=100)
    for number in range(10_000):
        rates.take(f"key{number}", 0.001, 1, now=float(number % 7))
        assert len(rates) <= 100


def test_full_buckets_go_before_one_that_somebody_is_waiting_for() -> None:
    rates = RateLimiter(most=4)
    rates.take("greedy", 0.001, 1, now=0.0)
    for number in range(100):
        rates.take(f"key{number}", 100, 1, now=float(number))
        assert rates.take("greedy", 0.001, 1, now=float(number)) > 0.0


def test_taking_costs_no_more_however_many_keys_there_are() -> None:
    assert costs_less_than(10, lambda: cheapest_s(10_000), lambda: cheapest_s(100))


def cheapest_s(count: int) -> float:
    """CPU seconds of 10,000 takes among so many keys; the quickest of three rounds."""
    rates = RateLimiter()
    keys = [f"token{number}" for number in range(count)] * (10_000 // count)
    took_s = []
    for later in range(4):
        began = time.process_time()
        for number, key in enumerate(keys):
            rates.take(key, 1e6, 1000, later * 100 + number * 1e-3)
        took_s.append(time.process_time() - began)
    return min(took_s[1:])


def guess(failures: LoginThrottle, name: str, address: str, count: int, now: float = 0.0) -> float:
    """Fail so often, waiting as told; the time it is then."""
    for _ in range(count):
        now += failures.wait(name, address, now)
        failures.failed(name, address, now)
    return now


def test_guessing_at_an_account_waits_ever_longer_but_never_more_than_a_minute() -> None:
    failures, now, waits = LoginThrottle(), 0.0, []
    for _ in range(16):
        waits.append(failures.wait("ada", "192.0.2.7", now))
        now = guess(failures, "ada", "192.0.2.7", 1, now)
    assert waits == [0.0] * 5 + [1, 2, 4, 8, 16, 32] + [60.0] * 5


def test_guessing_at_an_account_from_many_addresses_is_slowed_down_as_well() -> None:
    failures, now, waits = LoginThrottle(), 0.0, []
    for number in range(30):
        waits.append(failures.wait("ada", f"192.0.2.{number}", now))
        now = guess(failures, "ada", f"192.0.2.{number}", 1, now)
    assert waits == [0.0] * 20 + [1, 2, 4, 8, 16, 32] + [60.0] * 4


def test_one_password_tried_on_many_accounts_is_slowed_down_by_the_address() -> None:
    failures, now, waits = LoginThrottle(), 0.0, []
    for number in range(30):
        waits.append(failures.wait(f"user{number}", "192.0.2.7", now))
        now = guess(failures, f"user{number}", "192.0.2.7", 1, now)
    assert waits == [0.0] * 20 + [1, 2, 4, 8, 16, 32] + [60.0] * 4
    assert failures.wait("ada", "192.0.2.8", now) == 0.0


def test_one_who_mistypes_keeps_nobody_else_behind_the_proxy_out() -> None:
    failures = LoginThrottle()
    for _ in range(LoginThrottle.FREE):
        failures.failed("eve", "192.0.2.7", now=0.0)
    assert failures.wait("eve", "192.0.2.7", now=0.0) > 0.0
    assert failures.wait("ada", "192.0.2.7", now=0.0) == 0.0


def test_who_got_in_lately_gets_in_however_others_guess_at_their_address_or_account() -> None:
    failures = LoginThrottle()
    failures.succeeded("ada", "192.0.2.7")
    for number in range(1000):
        failures.failed(f"user{number}", "192.0.2.7", now=0.0)
        failures.failed("ada", f"198.51.100.{number % 250}", now=0.0)
    assert failures.wait("ada", "192.0.2.7", now=0.0) == 0.0
    assert failures.wait("bob", "192.0.2.7", now=0.0) > 0.0
    guess(failures, "ada", "192.0.2.7", LoginThrottle.FREE)
    assert failures.wait("ada", "192.0.2.7", now=0.0) > 0.0, "guesses at that very account count"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["192.0.2.1", "192.0.2.2", "::1"]),
            st.floats(0, 100),
            st.booleans(),
        ),
        max_size=100,
    )
)
def test_no_wait_is_longer_than_a_minute(tries: list[tuple[str, str, float, bool]]) -> None:
    failures, now = LoginThrottle(), 0.0
    for name, address, gap, good in tries:
        now += gap
        failures.failed(name, address, now)
        if good:
            failures.succeeded(name, address)
        assert all(failures.wait(one, address, now) <= 60.0 for one in "abc")


def test_guesses_at_the_same_time_count_as_many() -> None:
    failures = LoginThrottle()
    heard = 0
    for _ in range(100):
        if failures.wait("ada", "192.0.2.7", now=0.0) == 0.0:
            failures.failed("ada", "192.0.2.7", now=0.0)
            heard += 1
    assert heard == 5


def test_an_account_of_ones_own_does_not_help_to_guess_at_others() -> None:
    failures, heard = LoginThrottle(), 0
    for number in range(200):
        for name in ("mallory", f"victim{number}"):
            if failures.wait(name, "192.0.2.7", now=0.0) == 0.0:
                failures.failed(name, "192.0.2.7", now=0.0)
                if name == "mallory":
                    failures.succeeded(name, "192.0.2.7")
                else:
                    heard += 1
    assert heard <= LoginThrottle.FREE_SHARED


def test_failures_are_forgotten_after_an_hour_without_any() -> None:
    failures = LoginThrottle()
    for _ in range(50):
        failures.failed("ada", "192.0.2.7", now=0.0)
    assert failures.wait("ada", "192.0.2.7", now=1.0) > 0.0
    failures.failed("ada", "192.0.2.7", now=3601.0)
    assert failures.wait("ada", "192.0.2.7", now=3601.0) == 0.0


def test_a_flood_of_names_and_addresses_takes_a_bounded_room() -> None:
    failures = LoginThrottle(most=100)
    for number in range(5000):
        failures.failed(f"{number}" * 100, f"2001:db8:{number:x}::1", now=0.0)
        failures.succeeded(f"{number}", f"2001:db8:{number:x}::2")
        assert len(failures) <= 200


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002::/64"),
        ("2001:db8:1:2::1", "20010db800010002::/64"),
        ("::1", "0::/64"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_an_ipv6_client_is_its_network(address: str, network: str) -> None:
    assert network_of(address) == network
