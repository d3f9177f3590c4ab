"""A report of a process that says too much is cut, and says so."""

import json

import msgspec

from admin_ui.reports.seen import seen_report
from control.jobs.policy.report_bounds import DEPTH, LISTS, POINTS, TEXT_CHARACTERS, bounded
from control.jobs.report import (
    Figure,
    GraphNode,
    NetworkGraph,
    Plot,
    PlotSeries,
    Report,
    ReportTable,
)

POINT = (1.0, 2.0)


def plots(count: int, series: int, points: int) -> tuple[Plot, ...]:
    one = Plot("p", "x", "y", (PlotSeries("s", (POINT,) * points),) * series)
    return (one,) * count


def test_a_report_of_the_usual_size_stays_as_it_is() -> None:
    report = Report(
        title="Quantised",
        verdict="accepted",
        reasons=("it is small",),
        figures=(Figure("size", "bytes", 8, 2.5, "lower"),),
        tables=(ReportTable("t", ("a", "b"), (("x", 1), (None, True))),),
        plots=plots(2, 2, 100),
        graphs=(NetworkGraph("g", (GraphNode("Conv", "c", (0,)),)),),
        spec={"points": {"a": [1, [2.5]]}},
    )
    assert bounded(report) == report


def test_what_is_too_long_is_cut_and_a_warning_names_it() -> None:
    report = Report(
        title="x" * 10_000,
        verdict="accepted",
        tables=(ReportTable("t", ("a",), ((1,),) * 10_000),),
        plots=plots(20, 2, 5_000),
    )
    kept = bounded(report)
    assert len(kept.title) == TEXT_CHARACTERS
    assert len(kept.tables[0].rows) == LISTS["rows"]
    assert len(kept.plots[0].series[0].points) == LISTS["points"]
    assert sum(len(one.points) for plot in kept.plots for one in plot.series) == POINTS
    assert kept.warnings[-1].endswith("it is cut in: points, rows, title")


def test_whatever_was_kept_can_be_written_and_shown() -> None:
    nested = json.loads("[" * 500 + "]" * 500)
    report = Report(
        title="t\0",
        verdict="advice",
        tables=(ReportTable("t", ("a",), ((10**4_000,), (-(10**4_000),))),),
        spec={"deep": nested, "list": [1] * 10_000},
    )
    kept = bounded(report)
    assert kept.tables[0].rows == ((2**63 - 1,), (1 - 2**63,))
    assert kept.spec["list"] == [1] * 2_000
    assert json.dumps(kept.spec["deep"]).count("[") == DEPTH - 2
    assert seen_report(msgspec.json.decode(msgspec.json.encode(kept))).report == kept
