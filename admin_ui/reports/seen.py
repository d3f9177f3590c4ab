"""A report as templates show it: its plots and networks drawn. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from admin_ui.reports.comparison import FigureView, shown
from admin_ui.reports.networks import DrawnNetwork, draw_network
from admin_ui.reports.plots import DrawnPlot, draw
from control.jobs.report import Report, ReportTable


@dataclass(frozen=True, slots=True)
class SeenTable:
    """`columns`: the name of each, and whether it has nothing but numbers."""

    title: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class SeenReport:
    """`reasons` and `warnings` are whole sentences; `spec`: the report's, as indented JSON."""

    report: Report
    reasons: Sequence[str]
    warnings: Sequence[str]
    figures: Sequence[FigureView]
    tables: Sequence["SeenTable"]
    plots: Sequence[DrawnPlot]
    networks: Sequence[DrawnNetwork]
    spec: str


def seen_report(document: Mapping[str, Any]) -> SeenReport:
    """`document`: the report as the control API writes it."""
    report = msgspec.convert(document, Report)
    return SeenReport(
        report,
        [sentence(one) for one in report.reasons],
        [sentence(one) for one in report.warnings],
        shown(report.figures),
        [_table(one) for one in report.tables],
        [draw(one) for one in report.plots],
        [draw_network(one) for one in report.graphs],
        json.dumps(report.spec, indent=2, ensure_ascii=False),
    )


def sentence(text: str) -> str:
    """With a capital letter in front, and a full stop behind."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _table(table: ReportTable) -> SeenTable:
    columns = [
        (name, all(_is_number(row[at]) for row in table.rows if at < len(row)))
        for at, name in enumerate(table.columns)
    ]
    return SeenTable(table.title, columns, table.rows)


def _is_number(cell: object) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))
