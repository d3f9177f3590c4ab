"""Two networks on the same rows: what is counted, and what is warned of."""

import numpy as np
import pytest

from jobs.tools.convert.run import _within
from jobs.tools.equality import CheckedShape, by_output, compare_with, uneven_outputs
from jobs.tools.measure.comparison import Difference
from jobs.tools.work import WorkRefused


def checked(*outliers: tuple[str, int]) -> list[CheckedShape]:
    """Each of 10 rows."""
    return [
        CheckedShape("made up", "X [10]", (Difference(name, 10, 1.0, 1.0, beyond, 0),))
        for name, beyond in outliers
    ]


def test_rows_of_an_output_are_added_up_over_the_shapes() -> None:
    totals = by_output(checked(("Y", 1), ("Z", 0), ("Y", 3)))
    assert [(one.output, one.rows, one.beyond) for one in totals] == [("Y", 20, 4), ("Z", 10, 0)]


def test_an_exact_output_does_not_excuse_another() -> None:
    assert not _within(checked(("Y", 2), ("Z", 0)), 0.1)
    assert _within(checked(("Y", 1), ("Z", 1)), 0.1)


def test_a_source_without_outputs_cannot_be_compared() -> None:
    with pytest.raises(WorkRefused, match="nothing can be compared"):
        compare_with([{}], lambda _: {}, [("made up", {"X": np.ones(2)})], 1e-4)


def test_columns_of_very_different_size_are_warned_of() -> None:
    one = Difference("BOXES", 10, 0.0, 0.0, 0, 0, 640.0)
    (warning,) = uneven_outputs([CheckedShape("data", "", (one, one))])
    assert warning.startswith("the columns of output 'BOXES' differ 640-fold in size")
    assert uneven_outputs(checked(("Y", 0))) == []
