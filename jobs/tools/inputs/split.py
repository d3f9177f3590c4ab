"""Rows that a tool may learn from, and rows that it may only be judged by. Pure."""

from typing import NamedTuple

import numpy as np

from jobs.tools.inputs.data_file import DataRows

LEAST_ROWS = 32
LEAST_SELECTION = 32


class DataSplit(NamedTuple):
    """calibration: ranges come from these. selection: choices between results are made by these.
    held_out: the verdict comes from these, which nothing else has seen."""

    calibration: DataRows
    selection: DataRows
    held_out: DataRows


def split_rows(rows: DataRows, samples: int, evaluate: int, seed: int) -> DataSplit:
    """Hold out one half in random order, up to `evaluate` rows; of the other half, `samples` rows
    calibrate and the rest selects; where little rests, those that calibrate select as well.

    The data must have at least LEAST_ROWS rows.
    """
    order = np.random.default_rng(seed).permutation(rows.length)
    half = rows.length // 2
    held_out, seen = order[:half][:evaluate], order[half:]
    calibration, rest = seen[:samples], seen[samples:][:evaluate]
    selection = rest if len(rest) >= LEAST_SELECTION else calibration
    return DataSplit(*(rows.take(one) for one in (calibration, selection, held_out)))
