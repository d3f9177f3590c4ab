"""A chart's points as CSV: for whoever may look at its page, and safe to open."""

import csv

import pytest

from admin_ui.chart_download import csv_of
from admin_ui.traffic.charts import TrafficChart
from control.clock import utc_now
from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from control.series.recording import store
from control.sql.database import SYSTEM
from support.admin import Api
from support.console import Person, person

AT = ["2026-11-24T04:00:00.000Z", "2026-11-24T04:00:10.000Z"]


def served(night: Api) -> None:
    """A minute ago, version 1 answered twenty requests and version 2 ten."""
    at = int(utc_now().timestamp()) // 10 * 10 - 60
    rows = tuple(
        SubjectPoint(SeriesSubject("version", "digits", version), SeriesPoint(30 - 10 * version))
        for version in (1, 2)
    )
    window = SeriesWindow(
        "east", "boot", at, (*rows, SubjectPoint(SeriesSubject("server"), SeriesPoint(30)))
    )
    with night.database.change(SYSTEM) as tx:
        store(tx, window)


def test_every_point_is_a_row_and_what_is_not_known_is_empty() -> None:
    chart = TrafficChart("c", "Latency", "ms", ["=a", "b"], AT, [[1.5, None], [None, 2.0]], {})
    assert list(csv.reader(csv_of(chart).splitlines())) == [
        ["from", "'=a (ms)", "b (ms)"],
        [AT[0], "1.5", ""],
        [AT[1], "", "2.0"],
    ]


def test_the_page_leads_to_its_numbers(night: Api) -> None:
    served(night)
    vera = person(night, "viewer")
    page = vera.get("/models/digits").text
    link = "/chart.csv?at=/models/digits&amp;chart=traffic-requests"
    assert link in page
    found = vera.get(link.replace("&amp;", "&"))
    assert found.status == 200
    assert found.headers["content-disposition"].endswith('"modelyard-models-digits-requests.csv"')
    rows = list(csv.reader(found.text.splitlines()))
    assert rows[0] == ["from", "version 1", "version 2"]
    busiest = max(rows[1:], key=lambda row: float(row[1] or 0))
    assert float(busiest[1]) == pytest.approx(2 * float(busiest[2]), rel=0.01)


def test_a_version_has_charts_of_its_own(night: Api) -> None:
    served(night)
    page = person(night, "operator").get("/models/digits/versions/2").text
    assert "Latency by percentile" in page
    assert "model=digits&amp;version=2" in page


def test_no_page_no_chart_and_nobody(night: Api) -> None:
    vera = person(night, "viewer")
    assert vera.get("/chart.csv?at=/nowhere&chart=x").status == 404
    assert vera.get("/chart.csv?at=/models/digits&chart=x").status == 404
    assert Person(night).get("/chart.csv?at=/&chart=traffic-requests").status == 303
