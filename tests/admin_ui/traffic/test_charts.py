"""Charts of traffic show who was asked, no more lines than one can tell, and lead to requests."""

import json
from typing import Any

from admin_ui.traffic.charts import MOST_LINES, busy, compared, merged_by_server, of_servers, single

AT = ["2026-11-24T04:00:00.000Z", "2026-11-24T04:00:10.000Z"]
COLUMNS = [
    "error_rate",
    "latency_ms_p50",
    "latency_ms_p95",
    "latency_ms_p99",
    "queue_ms",
    "compute_ms",
    "batch_rows",
    "instances_busy",
    "instances",
    "pending",
    "memory_bytes",
]


def item(name: str, *rates: float | None, **more: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {one: [0.5, None] for one in COLUMNS}
    return {"name": name, "requests_per_s": rates, "failed_per_s": {}, **columns, **more}


def page(*items: dict[str, Any]) -> dict[str, Any]:
    return {"at": AT, "step_s": 10, "items": list(items)}


def test_who_was_not_asked_is_left_out_and_lines_are_in_the_order_of_their_names() -> None:
    items = [item("v10", 1.0, 0.0), item("idle", 0.0, None), item("v9", 0.5, 0.0)]
    assert [one["name"] for one in busy(items)] == ["v10", "v9"]
    first = compared(page(*items))[0]
    assert first.lines == ["v9", "v10"]
    moments, lower, higher = json.loads(first.series)
    assert moments[1] - moments[0] == 10
    assert (lower, higher) == ([0.5, 0.0], [1.0, 0.0])


def test_the_stable_arm_has_the_first_line_as_on_the_page_of_a_rollout() -> None:
    arms = [item("candidate", 5.0, 0.0), item("stable", 1.0, 0.0)]
    charts = {one.id: one for one in compared(page(*arms))}
    assert charts["traffic-requests"].lines == ["stable", "candidate"]
    assert charts["traffic-time"].lines[0] == "stable queue"


def test_shares_are_percent_and_the_table_is_newest_first_without_empty_rows() -> None:
    errors = next(one for one in compared(page(item("a", 1.0, 1.0))) if one.unit == "%")
    assert errors.rows == [(AT[0], [50.0])]
    assert errors.whole == [(AT[0], [50.0]), (AT[1], [None])]


def test_the_latency_chart_has_the_slowest_and_the_others_the_busiest() -> None:
    many = [
        item(f"m{number}", 1.0, number, latency_ms_p99=[100.0 - number, None])
        for number in range(MOST_LINES + 3)
    ]
    charts = {one.id: one for one in compared(page(*many))}
    assert charts["traffic-requests"].lines == ["m3", "m4", "m5", "m6", "m7", "m8"]
    assert charts["traffic-p99"].lines == ["m0", "m1", "m2", "m3", "m4", "m5"]


def test_failures_are_drawn_by_reason_only_where_there_are_any() -> None:
    quiet = item("a", 1.0, failed_per_s={"BACKEND": [0.0, None]})
    failing = item("b", 1.0, failed_per_s={"BACKEND": [0.5, 1.0], "REJECTED": [0.0, 0.0]})
    charts = {one.id: one for one in compared(page(quiet, failing))}
    assert charts["traffic-reasons"].lines == ["b BACKEND"]
    assert "traffic-reasons" not in {one.id for one in compared(page(quiet))}


def test_the_peak_of_the_latency_leads_to_the_slowest_requests_of_its_minute() -> None:
    times = {"queue_ms": [1.0, 2.0], "compute_ms": [9.0, 180.0]}
    slow = item("2", 1.0, 1.0, latency_ms_p99=[10.0, 374.0], **times)
    drawn = compared(page(slow), lambda version: {"model": "digits", "version": version})
    peak = next(one.peak for one in drawn if one.id == "traffic-p99")
    assert peak is not None
    assert (peak.line, peak.value, peak.moment) == ("2", 374.0, AT[1])
    assert (peak.queue_ms, peak.compute_ms) == (2.0, 180.0)
    assert peak.to == (
        "/requests?model=digits&version=2&order=slowest"
        "&since=2026-11-24T04%3A00%3A10Z&until=2026-11-24T04%3A01%3A10Z"
    )


def test_who_may_not_see_requests_is_led_to_none() -> None:
    drawn = compared(page(item("2", 1.0, 1.0)))
    assert not any(one.queries for one in drawn)
    assert all(one.peak is None or not one.peak.to for one in drawn)


def test_a_language_model_has_charts_of_its_tokens() -> None:
    language = {
        "generated_tokens_per_s": [3.0, 4.0],
        "prompt_tokens_per_s": [1.0, 1.0],
        **{f"first_token_ms_p{percent}": [20.0, None] for percent in (50, 95)},
        **{f"between_tokens_ms_p{percent}": [2.0, None] for percent in (50, 95)},
        "running": [1, 1],
        "waiting": [0, 0],
        "kv_use": [0.25, None],
        "prefix_hit_share": [0.5, None],
    }
    stories = item("stories", 1.0, 1.0, language=language)
    drawn = {one.id: one for one in compared(page(stories))}
    assert json.loads(drawn["traffic-tokens"].series)[1] == [3.0, 4.0]
    details = {one.id: one for one in single(page(stories))}
    assert details["traffic-kv"].columns == [[25.0, None], [50.0, None]]
    assert details["traffic-first"].lines == ["p50", "p95"]


def test_one_version_shows_its_percentiles_its_failures_and_its_memory_in_mebibytes() -> None:
    one = item("1", 1.0, 2.0, failed_per_s={"OTHER": [0.0, 1.0]}, memory_bytes=[2**20, None])
    drawn = {chart.id: chart for chart in single(page(one), {"model": "m", "version": "1"})}
    assert drawn["traffic-requests"].lines == ["all", "OTHER"]
    assert drawn["traffic-latency"].lines == ["p50", "p95", "p99"]
    assert (drawn["traffic-memory"].unit, drawn["traffic-memory"].columns) == ("MiB", [[1.0, None]])


def test_servers_are_lines_of_one_chart() -> None:
    pages = {"east": page(item("server", 1.0, 1.0)), "west": page(item("server", 2.0, 0.0))}
    assert of_servers(merged_by_server(pages))[0].lines == ["east", "west"]


def test_a_server_without_requests_shows_its_memory() -> None:
    idle = merged_by_server({"east": page(item("server", 0.0, 0.0, memory_bytes=[2**20, 2**20]))})
    assert {one.id: one for one in of_servers(idle)}["traffic-memory"].columns == [[1.0, 1.0]]
