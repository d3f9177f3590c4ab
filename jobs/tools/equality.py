"""Two networks on the same rows, at several shapes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from control.jobs.report import ReportTable
from jobs.tools.inputs.data_file import DataRows
from jobs.tools.inputs.made_up import made_up_rows
from jobs.tools.measure.comparison import Difference, differences
from jobs.tools.networks.tensors import NetworkTensor, RowRunner, Rows
from jobs.tools.work import WorkRefused, refuse

MOST_AT_ONCE, BATCH = 256, 32
UNEVEN = 100.0
"""Columns that differ by more than this in size are warned of."""
OPEN_SIZES = (24, 40, 64, 96, 160, 224)
"""Sizes tried for open dimensions behind the first."""


class CheckedShape(NamedTuple):
    """How far the outputs are apart for inputs of these shapes; `origin` says whose rows."""

    origin: str
    shapes: str
    differences: tuple[Difference, ...]


class OutputTotal(NamedTuple):
    """Of one output over all shapes: rows compared, those beyond the tolerance, label flips."""

    output: str
    rows: int
    beyond: int
    flips: int


def by_output(checked: Sequence[CheckedShape]) -> list[OutputTotal]:
    """Totals of each output, in the source's order."""
    found: dict[str, OutputTotal] = {}
    for one in (one for shape in checked for one in shape.differences):
        past = found.get(one.output, OutputTotal(one.output, 0, 0, 0))
        found[one.output] = OutputTotal(
            one.output, past.rows + one.rows, past.beyond + one.outliers, past.flips + one.flips
        )
    return list(found.values())


def compare_with(
    expected: Sequence[Rows],
    result: RowRunner,
    inputs: Sequence[tuple[str, Rows]],
    tolerance: float,
) -> list[CheckedShape]:
    """Run the result on each of the inputs, which come with their origin, and compare it with what
    the source answered to them. Refuses where nothing is there to compare."""
    checked = [
        CheckedShape(origin, shapes_of(rows), tuple(differences(wanted, result(rows), tolerance)))
        for wanted, (origin, rows) in zip(expected, inputs, strict=True)
    ]
    if not any(one.rows for shape in checked for one in shape.differences):
        refuse("the source answers no row of any output, so that nothing can be compared")
    return checked


def uneven_outputs(checked: Sequence[CheckedShape]) -> list[str]:
    """Warnings of outputs whose columns differ so much in size that one tolerance does not suit
    them all."""
    found: dict[str, float] = {}
    for one in (one for shape in checked for one in shape.differences):
        found[one.output] = max(found.get(one.output, 1.0), one.uneven)
    return [
        f"the columns of output '{name}' differ {uneven:.0f}-fold in size, and the tolerance is a "
        "share of the largest value: small columns were hardly compared; a smaller tolerance does"
        for name, uneven in found.items()
        if uneven > UNEVEN
    ]


def in_batches(run: RowRunner, rows: Rows) -> Rows:
    """Run rows at once up to MOST_AT_ONCE, and more of them in batches, for the sake of memory."""
    count = len(next(iter(rows.values())))
    if count <= MOST_AT_ONCE:
        return run(rows)
    parts = [
        run({name: array[start : start + BATCH] for name, array in rows.items()})
        for start in range(0, count, BATCH)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def inputs_to_compare(
    tensors: Sequence[NetworkTensor],
    rows: Sequence[int],
    data: DataRows | None,
    run: RowRunner,
    seed: int,
) -> list[tuple[str, Rows]]:
    """Rows of the data at each of the numbers of rows, or made-up ones, at changing sizes where
    dimensions are open; a network with a fixed number of rows is compared at that one.

    run: the source, which tells what sizes it takes. Refuses where it takes none.
    """
    for one in tensors:
        if not one.shape:
            refuse(f"the input '{one.name}' is a single number; every input must have rows")
    fixed = max((one.shape[0] or 0 for one in tensors if one.shape), default=0)
    counts = [fixed] if fixed else sorted(set(rows))
    if data is not None:
        return [("data", _first(data, count)) for count in counts]
    return [("made up", _made_up(tensors, at, count, run, seed)) for at, count in enumerate(counts)]


def largest_relative(checked: Sequence[CheckedShape]) -> float:
    """The largest relative difference of all."""
    return max((one.relative for shape in checked for one in shape.differences), default=0.0)


def equality_table(checked: Sequence[CheckedShape]) -> ReportTable:
    """The comparison as a table of the report."""
    columns = (
        "inputs", "shapes", "output", "rows", "largest difference", "relative",
        "rows beyond the tolerance", "label flips",
    )  # fmt: skip
    rows = tuple(
        (
            shape.origin, shape.shapes, one.output, one.rows, one.largest, one.relative,
            one.outliers, one.flips,
        )
        for shape in checked
        for one in shape.differences
    )  # fmt: skip
    return ReportTable("Source and result on the same rows", columns, rows)


def shapes_of(rows: Rows) -> str:
    """Names and shapes in words."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in rows.items())


def _first(data: DataRows, count: int) -> Rows:
    return {name: array[:count] for name, array in data.inputs.items()}


def _made_up(
    tensors: Sequence[NetworkTensor], at: int, count: int, run: RowRunner, seed: int
) -> Rows:
    reasons = []
    for size in OPEN_SIZES[at % 2 :]:
        rows = made_up_rows(tensors, count, size, seed + at)
        try:
            run(rows)
        except WorkRefused as error:
            reasons.append(str(error))
        else:
            return rows
    return refuse(
        f"the source does not run on rows that are made up ({reasons[0]}); give a data file"
    )
