"""Points merge over time and over servers, and lose no request."""

import random

import pytest

from control.series.points import (
    LanguagePoint,
    SequencePoint,
    SeriesPoint,
    SeriesSubject,
    StepPoint,
    buckets_of,
    coarser,
    histogram_of,
    one_after_another,
    pack_latencies,
    side_by_side,
    subject_of,
)
from control.statistics.histogram import Histogram, quantile_of_buckets


def counted(*seconds: float) -> tuple[int, ...]:
    histogram = Histogram()
    for one in seconds:
        histogram.add(one)
    return pack_latencies(histogram)


MORNING = SeriesPoint(
    3, {"REJECTED": 1}, counted(0.001, 0.002, 0.5), 100, 200, 6, 2, 150, 4, 2, 1000,
    LanguagePoint(10, 20, 5, counted(0.1), counted(0.01, 0.02), 3, 1, 0.5),
    sequences=SequencePoint(5, 2, 4, 1_000, 64, 7, 1, 0),
    steps={"0:cheap": StepPoint(3, 1, 0, counted(0.001), 5, 6, 9), "1:dear": StepPoint(skipped=3)},
)  # fmt: skip
EVENING = SeriesPoint(
    1, {"OTHER": 2, "REJECTED": 1}, counted(0.004), 300, 100, 1, 1, 50, 1, 3, 500,
    LanguagePoint(1, 2, 0, (), counted(0.03), 1, 2, 0.7),
    sequences=SequencePoint(1, 0, 4, 5_000, 128, 2, 3, 4),
    steps={"1:dear": StepPoint(1, 0, 2, counted(0.2), 10, 20, 4, 1, 6)},
)  # fmt: skip


def test_counts_add_up_and_gauges_are_the_largest_of_stretches_that_follow_one_another() -> None:
    day = one_after_another([MORNING, EVENING])
    assert (day.succeeded, day.failed, day.failures) == (4, {"OTHER": 2, "REJECTED": 2}, 4)
    assert (day.rows, day.batches) == (7, 3)
    assert (day.queue_us, day.compute_us, day.busy_us) == (400, 300, 200)
    assert (day.pending, day.instances, day.memory_bytes) == (4, 3, 1000)
    assert day.latency == counted(0.001, 0.002, 0.5, 0.004)
    assert day.language == LanguagePoint(
        11, 22, 5, counted(0.1), counted(0.01, 0.02, 0.03), 3, 2, 0.7
    )
    assert day.sequences == SequencePoint(5, 2, 4, 5_000, 128, 9, 4, 4)
    assert day.steps == {
        "0:cheap": StepPoint(3, 1, 0, counted(0.001), 5, 6, 9),
        "1:dear": StepPoint(1, 0, 2, counted(0.2), 10, 20, 4, 4, 6),
    }


def test_gauges_add_up_over_servers() -> None:
    both = side_by_side([MORNING, EVENING])
    assert (both.pending, both.instances, both.memory_bytes) == (5, 5, 1500)
    assert both.language is not None
    assert both.sequences == SequencePoint(6, 2, 8, 5_000, 192, 9, 4, 4)
    assert (both.language.running, both.language.waiting, both.language.kv_use) == (4, 3, 0.7)


def test_merging_nothing_gives_nothing_and_one_stays_as_it_is() -> None:
    assert one_after_another([]) == SeriesPoint()
    assert side_by_side([MORNING]) is MORNING


def test_latencies_merge_as_histograms_do() -> None:
    rng = random.Random(7)
    parts = [[rng.lognormvariate(-5, 2) for _ in range(rng.randrange(50))] for _ in range(30)]
    whole = Histogram()
    for part in parts:
        for one in part:
            whole.add(one)
    assert histogram_of(counted(*part) for part in parts).as_list() == whole.as_list()


@pytest.mark.parametrize("packed", [(2_000, 1), (-1, 1), (0, -1), (0, 1) * 2_000, (1, 1, 1)])
def test_what_is_no_histogram_is_refused(packed: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"not a histogram|zip"):
        histogram_of([packed])


def test_a_subject_is_found_again_by_its_key() -> None:
    for subject in (
        SeriesSubject("version", "digits", 12),
        SeriesSubject("arm", "vision", 0, "candidate"),
        SeriesSubject("server"),
    ):
        assert subject_of(subject.key) == subject


def test_a_point_of_a_chunk_has_quantiles_that_are_little_off() -> None:
    rng = random.Random(11)
    seconds = [rng.lognormvariate(-4, 1) for _ in range(5_000)]
    fine = SeriesPoint(5_000, {}, counted(*seconds), language=LanguagePoint(1, 1, 0, counted(0.2)))
    coarse = coarser(fine)
    assert coarse.language is not None
    assert histogram_of([coarse.language.first_token]).n == 1
    for q in (0.5, 0.95, 0.99):
        exact = histogram_of([fine.latency]).quantile(q)
        assert histogram_of([coarse.latency]).quantile(q) == pytest.approx(exact, rel=0.06)
    assert len(coarse.latency) < len(fine.latency) / 2


def test_merged_latencies_are_those_of_one_histogram_of_all() -> None:
    drawn = random.Random(11)
    for _ in range(200):
        parts = [
            [drawn.lognormvariate(-5, 3) for _ in range(drawn.randrange(0, 30))]
            for _ in range(drawn.randrange(1, 6))
        ]
        merged = one_after_another([SeriesPoint(latency=counted(*part)) for part in parts])
        everything = [second for part in parts for second in part]
        assert merged.latency == counted(*everything)
        if everything:
            histogram, buckets = histogram_of([merged.latency]), [*buckets_of(merged.latency)]
            for q in (0.5, 0.95, 0.99, 1.0):
                assert quantile_of_buckets(buckets, q) == histogram.quantile(q)


def test_a_request_whose_client_had_gone_is_no_error() -> None:
    point = SeriesPoint(1, {"CANCELED": 2, "OTHER": 3})
    assert (point.failures, point.errors) == (5, 3)
