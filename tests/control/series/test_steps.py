"""What a step of an ensemble did: shares, rates and quantiles of what was counted."""

from control.series.points import SeriesPoint, StepPoint, pack_latencies
from control.series.steps import figures_of
from control.statistics.histogram import Histogram

WHOLE = SeriesPoint(90, {"BACKEND": 10})


def latencies(*seconds: float) -> tuple[int, ...]:
    histogram = Histogram()
    for one in seconds:
        histogram.add(one)
    return pack_latencies(histogram)


def test_the_skipped_share_is_of_rows() -> None:
    step = StepPoint(9, 1, 0, latencies(*[0.01] * 9), 9_000, 81_000, 40, 90, 360)
    found = figures_of(step, WHOLE, False, 50.0)
    assert (found.calls, found.calls_per_s, found.calls_per_request) == (10, 0.2, 0.1)
    assert (found.skipped, found.skipped_share) == (90, 0.9)
    assert (found.rows_per_call, found.error_rate) == (4.0, 0.1)
    assert (found.queue_ms, found.compute_ms) == (1.0, 9.0)
    assert found.latency_ms_p50 is not None
    assert abs(found.latency_ms_p50 - 10) < 0.3


def test_the_share_of_a_mapped_step_is_of_requests_for_its_calls_are_elements() -> None:
    found = figures_of(StepPoint(300, 0, 0, (), 0, 0, 300, 25, 25), WHOLE, True, 100.0)
    assert (found.calls_per_request, found.skipped_share) == (3.0, 0.25)


def test_of_nothing_nothing_is_said() -> None:
    found = figures_of(StepPoint(), SeriesPoint(), False, 10.0)
    assert (found.calls, found.calls_per_s) == (0, 0.0)
    ratios = (found.skipped_share, found.calls_per_request, found.rows_per_call, found.error_rate)
    assert {*ratios, found.latency_ms_p95, found.queue_ms} == {None}
