"""The 1797 handwritten digits of scikit-learn, split once and for all."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

HELD_OUT = 360


class Digits(NamedTuple):
    """`images` FP32 [n, 1, 8, 8] with pixels from 0 to 1, `labels` INT64 [n]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


class Split(NamedTuple):
    """What networks learn from, and what none of them has ever seen."""

    training: Digits
    held_out: Digits


def split() -> Split:
    """The same split on every machine."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(7).permutation(len(images))
    seen, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return Split(Digits(images[seen], labels[seen]), Digits(images[held_out], labels[held_out]))
