"""What is said of two samples; the comparison itself is a benchmark, and run by hand."""

import random
import subprocess
from pathlib import Path

import pytest

from benchmarks.against import Interval, Row, checked_out, ratio_of_medians, table


def drawn(middle: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [middle * dice.uniform(0.9, 1.1) for _ in range(27)]


def test_the_same_twice_is_a_ratio_of_one_within_its_interval() -> None:
    ratio, lower, upper = ratio_of_medians(drawn(50.0, 1), drawn(50.0, 2))
    assert lower < 1.0 < upper
    assert 0.95 < ratio < 1.05


def test_what_costs_a_fifth_more_is_told_from_what_does_not() -> None:
    ratio, lower, upper = ratio_of_medians(drawn(60.0, 1), drawn(50.0, 2))
    assert 1.1 < lower < ratio < upper < 1.3


def test_one_slow_round_does_not_move_the_ratio() -> None:
    here = [50.0] * 8 + [500.0]
    assert ratio_of_medians(here, [50.0] * 9).ratio == 1.0


def test_the_table_has_a_line_for_each_kind() -> None:
    text = table("abc", [Row("json", 9, 46.24, 45.6, Interval(1.0123, 0.99, 1.1))])
    assert "CPU-µs here | at abc" in text
    assert "| json | 9 | 46.2 | 45.6 | 1.012 | 0.990 to 1.100 |" in text


def test_a_revision_that_does_not_exist_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        checked_out("no-such-revision", tmp_path)
    assert list(tmp_path.iterdir()) == []
