"""Quantiles of packed histograms, and what is usual for a version."""

import pytest

from control.series.points import Latencies, pack_latencies
from control.statistics.histogram import histogram_of
from server.health.latencies import HOUR_S, HourLatency, UsualLatency, counts_of, quantile_of

NOW = 100 * HOUR_S


def packed(seconds: float, times: int = 200) -> Latencies:
    return pack_latencies(histogram_of([seconds] * times))


def test_a_quantile_of_several_windows_is_that_of_all_their_requests() -> None:
    counts = counts_of([packed(0.01, 90), packed(0.1, 10)])
    assert quantile_of(counts, 0.5) == pytest.approx(0.01, rel=0.03)
    assert quantile_of(counts, 0.95) == pytest.approx(0.1, rel=0.03)
    assert quantile_of(counts_of([]), 0.95) == 0.0


def filled(*p95s: float, times: int = 200) -> UsualLatency:
    """A full hour of each, the last ends at NOW."""
    usual = UsualLatency()
    for number, seconds in enumerate(p95s):
        usual.add(NOW - (len(p95s) - number) * HOUR_S, packed(seconds, times))
    usual.add(NOW, packed(9.0))
    return usual


def test_usual_is_the_median_of_full_hours_of_the_last_day() -> None:
    assert filled(0.01, 0.01, 5.0).usual_s(NOW) == pytest.approx(0.01, rel=0.03)
    assert filled(*[5.0] * 4, *[0.01] * 24).usual_s(NOW) == pytest.approx(0.01, rel=0.03)


def test_nothing_is_usual_after_one_hour_or_with_few_requests_or_long_ago() -> None:
    assert filled(0.01).usual_s(NOW) == 0.0
    assert filled(0.01, 0.01, times=99).usual_s(NOW) == 0.0
    assert filled(0.01, 0.01).usual_s(NOW + 48 * HOUR_S) == 0.0


def test_a_process_goes_on_with_the_hours_of_the_one_before() -> None:
    hours = filled(0.01, 0.01).hours
    assert hours[0] == HourLatency(NOW - 2 * HOUR_S, pytest.approx(0.01, rel=0.03))
    assert UsualLatency(hours).usual_s(NOW) == pytest.approx(0.01, rel=0.03)
