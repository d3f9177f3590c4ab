"""The table of `python -m benchmarks jobs`, and what it demands."""

import pytest

from benchmarks.jobs.lines import ShapeLine, misses, table
from control.jobs.report import Figure, Report


def converted(verdict: str = "accepted") -> Report:
    figures = (
        Figure("largest relative difference", "", None, 2e-7),
        Figure("label flips", "rows", None, 0.0),
    )
    return Report(title="Convert", verdict=verdict, reasons=("too far",), figures=figures)  # type: ignore[arg-type]


def quantised(size: float, ms: float) -> Report:
    figures = (
        Figure("size", "bytes", 4e6, size),
        Figure("accuracy", "", 0.96, 0.95),
        Figure("latency, batch 8", "ms", 10.0, ms),
    )
    return Report(title="Quantise", verdict="accepted", figures=figures)


def line(size: float = 1e6, ms: float = 4.0, verdict: str = "accepted") -> ShapeLine:
    return ShapeLine("resnet", "TorchScript", converted(verdict), quantised(size, ms))


def test_table_names_the_cpu_and_has_ratios() -> None:
    text = table([line()], "Some CPU (avx512_vnni)")
    assert "CPU: Some CPU (avx512_vnni), one thread" in text
    assert "accuracy 0.9600 → 0.9500 | 4.00 → 1.00 MB (4.00×) | 10.00 → 4.00 (2.50×)" in text


def test_network_without_int8_has_a_line_too() -> None:
    trees = ShapeLine("boosting", "XGBoost", converted(), None)
    assert "nothing to quantise" in table([trees], "CPU")
    assert misses([trees], ["resnet"], False) == []


@pytest.mark.parametrize(
    ("made", "saturates", "missed"),
    [
        (line(), False, []),
        (line(ms=6.0), True, []),
        (line(ms=6.0), False, ["resnet: int8 is 1.67 times as fast; 2.0 is asked"]),
        (line(ms=8.0), True, ["resnet: int8 is 1.25 times as fast; 1.5 is asked"]),
        (line(size=2e6), False, ["resnet: int8 is 2.00 times smaller; 3.5 is asked"]),
        (line(verdict="refused"), False, ["resnet: Convert is refused: too far"]),
    ],
)
def test_what_falls_short_is_named(made: ShapeLine, saturates: bool, missed: list[str]) -> None:
    assert misses([made], ["resnet"], saturates) == missed


def test_speed_is_demanded_of_convolutions_only() -> None:
    assert misses([line(ms=9.0)], [], False) == []
