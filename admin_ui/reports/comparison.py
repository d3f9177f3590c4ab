"""What two reports say of the same quantities, side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control.jobs.report import Figure, Report


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure as it is shown. `change`: what became of it, in words, "" where it cannot be said;
    `mood`: "good", "bad" or "" for neither."""

    name: str
    unit: str
    before: float | None
    after: float | None
    change: str
    mood: str


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of two results; None where a report does not have it."""

    name: str
    unit: str
    first: float | None
    second: float | None
    change: str
    mood: str


def shown(figures: Sequence[Figure]) -> list[FigureView]:
    """Each with the change from before to after."""
    return [
        FigureView(one.name, one.unit, one.before, one.after, *change(one.before, one.after, one))
        for one in figures
    ]


def compared(first: Report, second: Report) -> list[ComparedFigure]:
    """What both, or one, found of their results, in the order of the first."""
    others = {(one.name, one.unit): one for one in second.figures}
    rows = []
    for one in first.figures:
        other = others.pop((one.name, one.unit), None)
        after = None if other is None else other.after
        rows.append(
            ComparedFigure(one.name, one.unit, one.after, after, *change(one.after, after, one))
        )
    rows += [ComparedFigure(one.name, one.unit, None, one.after, "", "") for one in others.values()]
    return rows


def spec_differences(
    first: Mapping[str, object], second: Mapping[str, object]
) -> list[tuple[str, object, object]]:
    """Fields in which two specs differ, with both values; None where one has no such field."""
    names = dict.fromkeys((*first, *second))
    return [
        (name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def change(before: float | None, after: float | None, of: Figure) -> tuple[str, str]:
    """The words of a change, and whether it is an improvement."""
    if before is None or after is None:
        return "", ""
    if before == after:
        return "unchanged", ""
    is_good = {"lower": after < before, "higher": after > before}.get(of.better)
    mood = "" if is_good is None else "good" if is_good else "bad"
    return _words(before, after, of), mood


def _words(before: float, after: float, of: Figure) -> str:
    """Ratios of what is large, differences of shares: "3.5 times smaller", "-0.4 points"."""
    if of.unit in ("%", "points"):
        return f"{after - before:+.4g} points"
    if before <= 0 or after <= 0:
        return f"{after - before:+.4g} {of.unit}".strip()
    ratio = before / after if after < before else after / before
    word = "of it" if after < before else "times as much"
    if ratio < 1.2:
        return f"{(after / before - 1) * 100:+.3g} %"
    return f"1/{ratio:.3g} {word}" if after < before else f"{ratio:.3g} {word}"
