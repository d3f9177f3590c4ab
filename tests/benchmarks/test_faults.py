"""The table of faults: what it counts, what it takes for wrong, and two of its cells for real."""

import json
from pathlib import Path

import pytest

from benchmarks.faults.__main__ import main, table
from benchmarks.faults.cells import MOMENTS, cells, row_of
from benchmarks.faults.outcome import Outcome, verdict


def test_each_cell_is_there_once_and_its_moment_is_explained() -> None:
    names = [one.name for one in cells()]
    assert len(set(names)) == len(names) >= 174
    assert {one.moment for one in cells()} == set(MOMENTS)
    assert all(row_of(one).meaning for one in cells())


def test_a_fault_that_was_seen_and_recovered_from_is_as_promised() -> None:
    assert verdict(Outcome("a/b/c", right=5, observed="SIGKILL of 7", recovered_s=3.0), 60) == ""


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome("c", observed="x", recovered_s=1.0, wrong=2), "2 wrong"),
        (Outcome("c", observed="x", recovered_s=1.0, hung=1), "1 hung"),
        (Outcome("c", observed="x", recovered_s=1.0, lost=3), "3 lost"),
        (Outcome("c", observed="x"), "did not recover"),
        (Outcome("c", observed="x", recovered_s=90.0), "recovered after 90 s, promised 60"),
        (Outcome("c", recovered_s=1.0), "the fault was not seen to happen"),
    ],
)
def test_what_is_not_promised_is_told(outcome: Outcome, told: str) -> None:
    assert verdict(outcome, 60) == told


def test_a_cell_that_cannot_be_injected_is_named_and_not_counted() -> None:
    text = table(
        [
            Outcome("a/b/c", right=1, observed="x", recovered_s=1.0),
            Outcome("d/e/f", skipped="no tc"),
        ]
    )
    assert "1 cells: 1 right" in text
    assert "not injected here: d/e/f: no tc" in text


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_control_process_cost_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    state = tmp_path / "faults.jsonl"
    words = ["--only", "worker/kill/idle", "control process/kill/change", "--state", str(state)]
    assert main(words) == 0
    rows = [json.loads(line) for line in state.read_text().splitlines()]
    assert {row["cell"] for row in rows} == set(words[1:3])
    assert all(row["right"] and row["observed"].startswith("SIGKILL") for row in rows)
