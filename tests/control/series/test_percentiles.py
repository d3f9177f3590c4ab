"""Percentiles are kept within a bound of memory, and are those of the histogram."""

import pytest

from control.series.percentiles import PercentileCache
from control.series.points import pack_latencies
from control.statistics.histogram import Histogram


def histogram(*seconds: float) -> Histogram:
    made = Histogram()
    for one in seconds:
        made.add(one)
    return made


def test_percentiles_are_the_histograms_in_milliseconds() -> None:
    of = histogram(*(0.001 * number for number in range(1, 201)))
    found = PercentileCache().of(pack_latencies(of))
    assert found == tuple(pytest.approx(of.quantile(q) * 1e3, rel=1e-3) for q in (0.5, 0.95, 0.99))


def test_what_is_kept_stays_within_the_bound_whatever_its_shape() -> None:
    cache = PercentileCache(limit_bytes=20_000)
    wide = histogram(*(1.02**number * 1e-4 for number in range(300)))
    for count in range(1, 60):
        wide.add(0.001)
        cache.of(pack_latencies(wide))
        cache.of(pack_latencies(histogram(0.001 * count)))
        assert 0 < cache.size_bytes <= 20_000


def test_what_was_asked_for_last_is_kept() -> None:
    cache = PercentileCache(limit_bytes=1_000)
    often, once = (pack_latencies(histogram(seconds)) for seconds in (0.5, 2.0))
    first = cache.of(often)
    for number in range(1, 40):
        cache.of(pack_latencies(histogram(0.01 * number)))
        assert cache.of(often) is first
    second = cache.of(once)
    assert cache.of(once) is second


def test_one_that_is_larger_than_the_bound_is_answered_and_not_kept() -> None:
    cache = PercentileCache(limit_bytes=100)
    assert cache.of(pack_latencies(histogram(0.5)))[0] is not None
    assert cache.size_bytes == 0
