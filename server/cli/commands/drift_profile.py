"""A drift profile from a data set: a CSV file with a header, or the arrays of a NumPy .npz file."""

import csv
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from control.drift.categories import category_counts, hashed
from control.drift.numeric import counted
from control.drift.points import MOST_FEATURES, FeatureCounts, VersionDrift
from repository.config.tensors import BY_DTYPE, Array
from server.cli.commands.command import CommandFailed
from server.drift.counting import VersionCounts
from server.drift.features import MOST_ROWS, copied_tensors, plan_of
from server.signature import Signature, TensorSpec


def profile_of_data(path: Path, labels: str, names: bool) -> VersionDrift:
    """`labels`: the column or array that has the labels, "" for none; `names`: keep strings, rather
    than hashes of them. Raises CommandFailed."""
    try:
        found = (
            _of_arrays(path, labels, names)
            if path.suffix == ".npz"
            else _of_csv(path, labels, names)
        )
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, BadZipFile) as error:
        raise CommandFailed(f"{path} cannot be read as a data set: {error}") from error
    if not found.features:
        raise CommandFailed(f"{path} has no row")
    return found


def _of_csv(path: Path, labels: str, names: bool) -> VersionDrift:
    """A column is a feature of its name; one in which all is numbers is a histogram."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        columns: list[list[str]] = [[] for _ in header]
        for row in rows:
            if len(row) != len(header):
                raise ValueError(f"line {rows.line_num} has {len(row)} columns, not {len(header)}")
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    _check_label(labels, header)
    if len(header) > MOST_FEATURES:
        raise ValueError(f"{len(header)} columns; at most {MOST_FEATURES} features are compared")
    features = [
        _column(name, column, name == labels, names)
        for name, column in zip(header, columns, strict=True)
        if column
    ]
    return VersionDrift("", 0, len(columns[0]) if columns else 0, tuple(features))


def _column(name: str, column: list[str], is_label: bool, names: bool) -> FeatureCounts:
    numbers = None if is_label else _numbers(column)
    if numbers is not None:
        return FeatureCounts(name, "input", counted(numbers))
    shown = column if names or is_label else list(map(hashed, column))
    counts: dict[str, int] = {}
    for value in shown:
        counts[value] = counts.get(value, 0) + 1
    return FeatureCounts(name, "label" if is_label else "input", category_counts(counts))


def _numbers(column: list[str]) -> list[float] | None:
    try:
        return [float(value) if value else float("nan") for value in column]
    except ValueError:
        return None


def _of_arrays(path: Path, labels: str, names: bool) -> VersionDrift:
    """An array is an input of its name, its first dimension rows; features are named as the gateway
    names them."""
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Array] = {name: file[name] for name in file.files}
    _check_label(labels, list(arrays))
    whole = {name: len(array) for name, array in arrays.items()}
    if len(set(whole.values())) > 1:
        raise ValueError(f"its arrays have different numbers of rows: {whole}")
    specs = {name: _spec(name, array) for name, array in arrays.items()}
    inputs = {name: spec for name, spec in specs.items() if name != labels}
    outputs = {labels: specs[labels]} if labels else {}
    signature = Signature("", 0, 1, inputs, outputs, frozenset(inputs), False)
    plan = plan_of(signature, labels or "-")
    counts = VersionCounts("", 0, plan, names)
    for chunk in _chunks(arrays):
        counts.add(copied_tensors((*plan.inputs, *plan.outputs), chunk))
    return counts.taken() or VersionDrift("", 0, 0, ())


def _spec(name: str, array: Array) -> TensorSpec:
    known = BY_DTYPE.get(array.dtype)
    datatype = "BYTES" if array.dtype.kind in "SU" else "" if known is None else known.name
    if not datatype or not array.ndim:
        raise ValueError(f"the array {name} is of {array.dtype} {array.shape}; no input is that")
    dims = tuple(array.shape[1:])
    return TensorSpec(name, datatype, array.dtype, 0, dims, (-1, *dims), dims, 0, None)


def _chunks(arrays: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """So many rows as are looked at of a request."""
    rows = len(next(iter(arrays.values()), ()))
    for start in range(0, rows, MOST_ROWS):
        part = {name: array[start : start + MOST_ROWS] for name, array in arrays.items()}
        yield {
            name: array.astype(object) if array.dtype.kind in "SU" else array
            for name, array in part.items()
        }


def _check_label(labels: str, there: list[str]) -> None:
    if labels and labels not in there:
        raise ValueError(f"there is no '{labels}' in it; there are {', '.join(there)}")
