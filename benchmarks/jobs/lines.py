"""The lines of the table, and what is demanded of them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from control.jobs.report import Figure, Report

LEAST_RATIO = 3.5
BATCH = 8


class ShapeLine(NamedTuple):
    """A network's conversion to ONNX and, where it has layers that multiply, its int8."""

    name: str
    source: str
    converted: Report
    quantised: Report | None


def least_speedup(saturates: bool) -> float:
    """Of convolutions in int8 at batch 8 on one thread: on a CPU without VNNI, and with it."""
    return 1.5 if saturates else 2.0


def table(lines: Sequence[ShapeLine], cpu: str) -> str:
    """The table in Markdown, with the CPU named."""
    head = (
        "| network | from | ONNX: largest difference, label flips | int8: quality before → after | "
        "size before → after | ms at batch 8 before → after | verdict |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return f"CPU: {cpu}, one thread\n\n{head}" + "\n".join(_row(line) for line in lines) + "\n"


def misses(lines: Sequence[ShapeLine], convolutional: Sequence[str], saturates: bool) -> list[str]:
    """What falls short, in sentences."""
    found = []
    for line in lines:
        for report in (line.converted, line.quantised):
            if report is not None and report.verdict != "accepted":
                found.append(f"{line.name}: {report.title} is refused: {report.reasons[0]}")
        if line.quantised is None:
            continue
        if (ratio := size_ratio(line.quantised)) < LEAST_RATIO:
            found.append(f"{line.name}: int8 is {ratio:.2f} times smaller; {LEAST_RATIO} is asked")
        least = least_speedup(saturates)
        if line.name in convolutional and (faster := speedup(line.quantised)) < least:
            found.append(f"{line.name}: int8 is {faster:.2f} times as fast; {least} is asked")
    return found


def size_ratio(report: Report) -> float:
    """How many times smaller the result is."""
    before, after = _pair(report, "size")
    return before / after


def speedup(report: Report) -> float:
    """How many times as fast the result is at batch 8."""
    before, after = _pair(report, f"latency, batch {BATCH}")
    return before / after


def _row(line: ShapeLine) -> str:
    largest = _figure(line.converted, "largest relative difference").after
    flips = _figure(line.converted, "label flips").after
    cells = [line.name, line.source, f"{largest:.1e}, {flips:.0f}"]
    if line.quantised is None:
        return _cells([*cells, "nothing to quantise", "", "", line.converted.verdict])
    report = line.quantised
    quality = report.figures[1]
    size = _pair(report, "size")
    latency = _pair(report, f"latency, batch {BATCH}")
    cells += [
        f"{quality.name} {'' if quality.before is None else f'{quality.before:.4f} → '}"
        f"{quality.after:.4f}",
        f"{size[0] / 1e6:.2f} → {size[1] / 1e6:.2f} MB ({size_ratio(report):.2f}×)",
        f"{latency[0]:.2f} → {latency[1]:.2f} ({speedup(report):.2f}×)",
        report.verdict,
    ]
    return _cells(cells)


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(report: Report, name: str) -> Figure:
    return next(one for one in report.figures if one.name == name)


def _pair(report: Report, name: str) -> tuple[float, float]:
    found = _figure(report, name)
    return float(found.before or 0), float(found.after or 1)
