"""Texts of classes, and answers as JSON documents. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from repository.config.tensors import Array

ABSENT = -1
"""Stands for a class in the rows of a request that have fewer than the longest."""


def label_of(labels: Sequence[str], index: int) -> str:
    """The label of a class; its number where there are no labels; "" for none."""
    if index == ABSENT:
        return ""
    return labels[index] if index < len(labels) else str(index)


def texts(rows: Sequence[Sequence[str]], width: int) -> Array:
    """A BYTES array of [rows, width]; shorter rows end with empty texts."""
    array = np.full((len(rows), width), b"", np.object_)
    for number, row in enumerate(rows):
        for place, text in enumerate(row):
            array[number, place] = text.encode()
    return array


def documents(rows: Sequence[Any]) -> Array:
    """A BYTES array of [rows, 1]: each row's document as JSON."""
    array = np.empty((len(rows), 1), np.object_)
    array[:, 0] = [orjson.dumps(row) for row in rows]
    return array


def activated(values: Array, activation: str) -> Array:
    """Scores of a model's numbers, FP32, classes along the last dimension."""
    numbers = values.astype(np.float32, copy=False)
    if activation == "softmax":
        highest = numbers.max(axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(numbers - np.where(np.isfinite(highest), highest, 0))
        scores: Array = powers / powers.sum(axis=-1, keepdims=True)
        return scores
    if activation == "sigmoid":
        halves: Array = np.tanh(numbers * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)
        return halves
    return numbers


def plain(number: float) -> float | None:
    """A score as JSON has it: shortest digits of FP32; None for NaN and infinity."""
    return float(str(np.float32(number))) if np.isfinite(number) else None
