"""Differences of answers and of series are told in words, and with what can be known."""

import pytest

from admin_ui.pages.comparison import classes_of, outputs_differ, series_differ

STEP_S = 10


def output(*data: object, name: str = "OUT") -> dict[str, object]:
    return {"name": name, "data": list(data)}


def series(rate: float, failed: float, p50: float) -> dict[str, object]:
    latency = [p50 + number % 3 / 10 for number in range(60)]
    columns = dict.fromkeys(("latency_ms_p50", "latency_ms_p99", "queue_ms", "compute_ms"), latency)
    reasons = {"BACKEND": [failed] * 60} if failed else {}
    return {"requests_per_s": [rate] * 60, "failed_per_s": reasons, **columns}


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], "the same"),
        ([1.0, 2.0], [1.0, 2.5], "1 of 2 values differ, by 0.5 at most and 0.25 on average"),
        ([1.0], [1.0, 2.0], "1 values against 2"),
        (["a", "b"], ["a", "c"], "1 of 2 values differ"),
    ],
)
def test_values_that_differ_are_counted(
    first: list[object], second: list[object], words: str
) -> None:
    (found,) = outputs_differ([output(*first)], [output(*second)])
    assert found.words == words
    assert found.same is (words == "the same")


def test_an_output_that_only_one_has_is_named() -> None:
    found = outputs_differ([output(1, name="A")], [output(1, name="B")])
    assert [(one.name, one.words) for one in found] == [
        ("A", "only the first has it"),
        ("B", "only the second has it"),
    ]


def test_classes_stand_beside_each_other_the_likeliest_first() -> None:
    found = classes_of(["0.9:7:seven", "0.1:1:one"], ["0.95:1:one", "0.05:7:seven"])
    assert found == [("one", "1", 0.1, 0.95), ("seven", "7", 0.9, 0.05)]
    assert classes_of(["text"], ["0.1:1:one"]) == [("one", "1", None, 0.1)]


def test_a_slower_second_has_an_interval_above_nothing() -> None:
    rows = {one.label: one for one in series_differ(series(50, 0, 10), series(50, 0, 12), STEP_S)}
    slower = rows["Median latency"]
    assert slower.lower is not None
    assert slower.upper is not None
    assert 0 < slower.lower <= 2 <= slower.upper
    assert slower.verdict == "the second is higher"
    assert rows["Failed requests"].verdict == "no difference that can be told"


def test_more_failures_are_told_by_their_counts() -> None:
    rows = series_differ(series(50, 0, 10), series(50, 5, 10), STEP_S)
    assert (rows[0].first, rows[0].second) == (0.0, pytest.approx(10.0))
    assert rows[0].verdict == "the second is higher"


def test_without_requests_nothing_is_known() -> None:
    rows = series_differ(series(0, 0, 10), series(50, 0, 10), STEP_S)
    assert rows[0].verdict == "not known yet"
    assert series_differ(None, series(1, 0, 1), STEP_S) == []
