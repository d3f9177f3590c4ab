"""Charts of traffic show who was asked, the busiest first, and no more lines than one can tell."""

import json
from typing import Any

from admin_ui.pages.traffic import MOST_LINES, charts_of

AT = ["2026-11-24T04:00:00.000Z", "2026-11-24T04:00:10.000Z"]


def item(name: str, *rates: float | None, **more: Any) -> dict[str, Any]:
    columns = ("error_rate", "latency_ms_p99", "queue_ms", "compute_ms")
    return {"name": name, "requests_per_s": rates, **{one: [0.5, None] for one in columns}, **more}


def page(*items: dict[str, Any]) -> dict[str, Any]:
    return {"at": AT, "step_s": 10, "items": list(items)}


def test_the_busiest_come_first_and_who_was_not_asked_is_left_out() -> None:
    drawn = charts_of(page(item("a", 1.0, 0.0), item("idle", 0.0, None), item("b", 2.0, 5.0)), "1h")
    assert drawn.charts[0].lines == ["b", "a"]
    moments, busiest, second = json.loads(drawn.charts[0].series)
    assert moments[1] - moments[0] == 10
    assert (busiest, second) == ([2.0, 5.0], [1.0, 0.0])


def test_shares_are_percent_and_the_table_is_newest_first_without_empty_rows() -> None:
    errors = charts_of(page(item("a", 1.0, 1.0)), "1h").charts[1]
    assert json.loads(errors.series)[1] == [50.0, None]
    assert errors.rows == [(AT[0], [50.0])]


def test_more_series_than_can_be_told_apart_are_counted() -> None:
    many = [item(f"m{number}", 1.0, number) for number in range(MOST_LINES + 3)]
    drawn = charts_of(page(*many), "1h")
    assert len(drawn.charts[0].lines) == MOST_LINES
    assert drawn.left_out == 3


def test_a_language_model_has_charts_of_its_tokens() -> None:
    language = {"generated_tokens_per_s": [3.0, 4.0], "first_token_ms_p95": [20.0, None]}
    drawn = charts_of(page(item("stories", 1.0, 1.0, language=language)), "1h")
    assert [one.id for one in drawn.charts][-2:] == ["traffic-tokens", "traffic-first"]
    assert json.loads(drawn.charts[-2].series)[1] == [3.0, 4.0]
