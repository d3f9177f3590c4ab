"""What stands in the boxes of an ensemble's graph."""

from typing import Any

import pytest

from admin_ui.pages.steps import MOST_DRAWN, drawn, page_of, text_of_step

FIGURES = {
    "calls": 3600, "answered": 3600, "failed": 0, "cancelled": 0, "skipped": 0,
    "skipped_share": 0.0, "calls_per_s": 12.3456, "calls_per_request": 1.0, "rows_per_call": 1.0,
    "error_rate": 0.0, "latency_ms_p50": 1.0, "latency_ms_p95": 4.1234, "latency_ms_p99": 9.0,
    "queue_ms": 0.5, "compute_ms": 0.5,
}  # fmt: skip
STEP = {
    "number": 1, "model": "digits", "version": "", "inputs": {"IMAGE": "pixels"},
    "outputs": {"LOGITS": "Y"}, "condition": "", "mapped": "", "decoupled": False,
    "runs": "", "to": "/models/digits", "figures": FIGURES,
}  # fmt: skip


def lines(**figures: Any) -> list[str]:
    step = {**STEP, "figures": {**FIGURES, **figures}}
    return [line for _, line in text_of_step(step, 10).lines]


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        ({}, ["12.3/s · p95 4.12 ms"]),
        ({"calls": 5, "calls_per_s": 0.0014}, ["5 calls · p95 4.12 ms"]),
        ({"skipped": 7, "skipped_share": 0.8214}, ["12.3/s · p95 4.12 ms", "skipped 82.1 %"]),
        ({"failed": 36, "error_rate": 0.01}, ["12.3/s · p95 4.12 ms", "▲ 1 % failed"]),
        ({"cancelled": 1200}, ["12.3/s · p95 4.12 ms", "1,200 cancelled"]),
        ({"calls": 0, "skipped": 9, "latency_ms_p95": None}, ["left out each time"]),
        ({"calls": 0, "latency_ms_p95": None}, ["not called"]),
    ],
)
def test_a_box_says_how_often_and_how_fast_and_what_went_wrong(
    figures: dict[str, Any], shown: list[str]
) -> None:
    assert lines(**figures) == shown


def test_a_mapped_step_says_over_what_and_how_many_rows_a_request_has() -> None:
    step = {**STEP, "mapped": "crops", "figures": {**FIGURES, "calls_per_request": 3.25}}
    step["runs"] = "for each of crops"
    shown = [line for _, line in text_of_step(step, 10).lines]
    assert shown == ["for each of crops", "12.3/s · p95 4.12 ms", "3.25 rows a request"]


def test_a_step_leads_to_what_it_calls() -> None:
    assert page_of("digits", {"front"}) == "/models/digits"
    assert page_of("front", {"front"}) == "/routes/front"
    assert page_of("digits@champion", set()) == "/models/digits/aliases/champion"


def test_of_a_huge_graph_there_is_the_table_alone() -> None:
    steps = [{**STEP, "number": number} for number in range(MOST_DRAWN + 1)]
    found = drawn({"steps": steps, "inputs": ["X"], "outputs": ["Y"], "requests": 1}, set())
    assert found.layout is None
    assert found.undrawn == f"A graph of {MOST_DRAWN + 1} steps is not drawn."
    assert len(found.rows) == MOST_DRAWN + 1


def test_a_graph_in_which_each_step_reads_all_before_it_is_a_table() -> None:
    steps = [
        {
            **STEP,
            "number": number,
            "inputs": {"I": "X", **{f"I{at}": f"t{at}" for at in range(number)}},
            "outputs": {"O": f"t{number}" if number < MOST_DRAWN - 1 else "Y"},
        }
        for number in range(MOST_DRAWN)
    ]
    found = drawn({"steps": steps, "inputs": ["X"], "outputs": ["Y"], "requests": 1}, set())
    assert found.layout is None
    assert found.undrawn == (
        "A graph of 100 steps with 5,051 lines between them is too dense to be drawn."
    )
    assert len(found.rows) == MOST_DRAWN
