"""Rows that a tool may learn from, and rows that it may only be judged by. Pure."""

from typing import NamedTuple

import numpy as np

from jobs.tools.inputs.data_file import DataRows
from jobs.tools.networks.tensors import Array

LEAST_ROWS = 32
LEAST_SELECTION = 32


class DataSplit(NamedTuple):
    """calibration: ranges come from these. selection: choices between results are made by these.
    held_out: the verdict comes from these, which nothing else has seen."""

    calibration: DataRows
    selection: DataRows
    held_out: DataRows


def split_rows(rows: DataRows, samples: int, evaluate: int, seed: int, batch: int = 1) -> DataSplit:
    """Hold out one half in random order, up to `evaluate` rows; of the other half, `samples` rows
    calibrate and the rest selects; where little rests, those that calibrate select as well.

    The data must have at least LEAST_ROWS rows. batch: rows of each call where the network fixes
    them: all parts have a multiple of it, at least one; the data must have twice as many.
    """
    order = np.random.default_rng(seed).permutation(rows.length)
    half = rows.length // 2
    samples, evaluate = (max(one // batch, 1) * batch for one in (samples, evaluate))
    held_out, seen = _whole(order[:half][:evaluate], batch), _whole(order[half:], batch)
    calibration, rest = seen[:samples], seen[samples:][:evaluate]
    selection = rest if len(rest) >= LEAST_SELECTION else calibration
    return DataSplit(*(rows.take(one) for one in (calibration, selection, held_out)))


def _whole(order: Array, batch: int) -> Array:
    return order[: len(order) // batch * batch]
