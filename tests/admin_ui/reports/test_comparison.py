"""What became of a figure, in words, and the figures of two reports beside each other."""

import pytest

from admin_ui.reports.comparison import change, compared, shown, spec_differences
from control.jobs.report import Figure, Report


@pytest.mark.parametrize(
    ("before", "after", "unit", "better", "said", "mood"),
    [
        (14.0, 3.5, "MB", "lower", "1/4 of it", "good"),
        (2.0, 5.0, "ms", "lower", "2.5 times as much", "bad"),
        (10.0, 9.5, "ms", "lower", "-5 %", "good"),
        (97.0, 96.6, "%", "higher", "-0.4 points", "bad"),
        (5.0, 5.0, "", "lower", "unchanged", ""),
        (None, 5.0, "", "lower", "", ""),
        (3.0, 4.0, "nodes", "", "1.33 times as much", ""),
        (0.0, 4.0, "ms", "lower", "+4 ms", "bad"),
    ],
)
def test_a_change_is_said_as_people_say_it(
    before: float | None, after: float | None, unit: str, better: str, said: str, mood: str
) -> None:
    assert change(before, after, Figure("f", unit, before, after, better)) == (said, mood)  # type: ignore[arg-type]


def test_figures_of_two_results_stand_beside_each_other() -> None:
    first = Report(
        title="a",
        verdict="accepted",
        figures=(Figure("size", "B", 100, 25, "lower"), Figure("latency", "ms", 4, 2, "lower")),
    )
    second = Report(
        title="b",
        verdict="accepted",
        figures=(Figure("size", "B", 100, 50, "lower"), Figure("nodes", "", 9, 3)),
    )
    rows = [(one.name, one.first, one.second, one.change) for one in compared(first, second)]
    assert rows == [
        ("size", 25, 50, "2 times as much"),
        ("latency", 2, None, ""),
        ("nodes", None, 3, ""),
    ]
    assert [one.change for one in shown(first.figures)] == ["1/4 of it", "1/2 of it"]


def test_specs_differ_where_values_or_fields_do() -> None:
    assert spec_differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        ("a", 1, None),
        ("b", 2, 3),
        ("c", None, 4),
    ]
