"""What the networks are fitted and judged on: digits as pictures, and texts of a generator."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Array = NDArray[Any]

SIZE = 112
FITTED, GIVEN = 900, 512
"""Rows that a network is fitted to, and further ones that go into the data file."""
TOPICS, WORDS, VOCABULARY, LENGTH = 8, 10, 2000, 48


class LabelledRows(NamedTuple):
    """Rows and the class of each, for fitting and, later, for the data file of a job."""

    fitted: Array
    fitted_labels: Array
    given: Array
    given_labels: Array


def digit_tables() -> LabelledRows:
    """Pixels FP32 [n, 64] from 0 to 1 of handwritten digits."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(pixels))
    return _divided((pixels / 16).astype(np.float32)[order], labels[order].astype(np.int64))


def digit_pictures() -> LabelledRows:
    """The same digits as pictures FP32 [n, 3, 112, 112], bilinearly enlarged."""
    rows = digit_tables()
    return rows._replace(fitted=_enlarged(rows.fitted), given=_enlarged(rows.given))


def topic_texts() -> LabelledRows:
    """Token ids INT64 [n, 48]: each text has one of eight topics, of whose ten words are
    two thirds of its tokens; the others are drawn from all words."""
    random = np.random.default_rng(5)
    count = FITTED + GIVEN
    labels = random.integers(0, TOPICS, count)
    words = random.integers(10, VOCABULARY, (count, LENGTH))
    of_topic = random.permutation(np.arange(10, VOCABULARY))[: TOPICS * WORDS].reshape(
        TOPICS, WORDS
    )
    chosen = of_topic[labels[:, None], random.integers(0, WORDS, (count, LENGTH))]
    tokens = np.where(random.random((count, LENGTH)) < 2 / 3, chosen, words)
    tokens[:, 0] = 1
    return _divided(tokens.astype(np.int64), labels.astype(np.int64))


def _divided(rows: Array, labels: Array) -> LabelledRows:
    end = FITTED + GIVEN
    return LabelledRows(rows[:FITTED], labels[:FITTED], rows[FITTED:end], labels[FITTED:end])


def _enlarged(pixels: Array) -> Array:
    import torch

    images = torch.from_numpy(pixels.reshape(-1, 1, 8, 8)).expand(-1, 3, 8, 8)
    found: Array = torch.nn.functional.interpolate(
        images, (SIZE, SIZE), mode="bilinear", align_corners=False
    ).numpy()
    return found
