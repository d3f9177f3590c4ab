"""Rows to compare two networks on where nobody gave any. Pure."""

from collections.abc import Sequence

import numpy as np

from jobs.tools.networks.tensors import Array, NetworkTensor

MOST_INTEGER = 2
"""Integers are 0 or 1: token types, masks and the first tokens of any vocabulary."""


def made_up_rows(
    tensors: Sequence[NetworkTensor], rows: int, size: int, seed: int
) -> dict[str, Array]:
    """An array for each input, its first dimension `rows` and other open ones `size`.

    Floats are normal, integers 0 or 1, booleans either, texts "a". They serve to compare a
    network with another; they say nothing about accuracy and calibrate nothing.
    """
    random = np.random.default_rng(seed)
    return {one.name: _array(random, one, rows, size) for one in tensors}


def _array(random: np.random.Generator, tensor: NetworkTensor, rows: int, size: int) -> Array:
    shape = tuple(
        wanted or (rows if axis == 0 else size) for axis, wanted in enumerate(tensor.shape)
    )
    kind = np.dtype(tensor.dtype).kind
    if kind == "O":
        return np.full(shape, "a", dtype=object)
    if kind in "iub":
        return random.integers(0, MOST_INTEGER, shape).astype(tensor.dtype)
    return random.standard_normal(shape).astype(tensor.dtype)
