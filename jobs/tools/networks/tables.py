"""Parts of reports that several tools show: operators, latencies. Pure."""

from collections.abc import Sequence

import onnx

from control.jobs.report import Figure, Plot, PlotSeries, ReportTable
from jobs.tools.measure.latency import LatencyPair
from jobs.tools.networks.files import node_counts


def operator_table(before: onnx.ModelProto, after: onnx.ModelProto) -> ReportTable:
    """Numbers of nodes by operator, before and after."""
    old, new = node_counts(before), node_counts(after)
    names = sorted(old.keys() | new.keys())
    rows = tuple((name, old.get(name, 0), new.get(name, 0)) for name in names)
    return ReportTable("Nodes by operator", ("operator", "before", "after"), rows)


def latency_figures(latencies: Sequence[LatencyPair]) -> list[Figure]:
    """Latency and throughput of one thread at each batch size."""
    figures = []
    for one in latencies:
        name, unit = f"throughput, batch {one.batch}", "rows/s"
        before, after = one.batch / one.before_ms * 1e3, one.batch / one.after_ms * 1e3
        figures += [
            Figure(f"latency, batch {one.batch}", "ms", one.before_ms, one.after_ms, "lower"),
            Figure(name, unit, before, after, "higher"),
        ]
    return figures


def latency_plot(latencies: Sequence[LatencyPair]) -> tuple[Plot, ...]:
    """Bars for source and result at each batch size; nothing where none was measured."""
    if not latencies:
        return ()
    series = (
        PlotSeries("before", tuple((one.batch, one.before_ms) for one in latencies)),
        PlotSeries("after", tuple((one.batch, one.after_ms) for one in latencies)),
    )
    return (Plot("Latency on one thread", "batch size", "ms", series, "bar"),)
