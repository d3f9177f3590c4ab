"""Rows to compare ensembles of trees on: between their thresholds, and with NaN. Pure."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from jobs.tools.networks.tensors import Array, NetworkTensor, Rows

ROWS = 256
MISSING_SHARE = 0.3


def tree_rows(
    network: onnx.ModelProto, tensor: NetworkTensor, features: int, seed: int, *, nan: bool
) -> list[tuple[str, Rows]]:
    """Rows whose features lie between, below and above the thresholds that the trees compare them
    with, and, with `nan`, the same rows with values missing."""
    random = np.random.default_rng(seed)
    thresholds = _thresholds(network, features)
    columns = [_between(random, found) for found in thresholds]
    rows = np.stack(columns, axis=1).astype(tensor.dtype)
    found: list[tuple[str, Rows]] = [("between thresholds", {tensor.name: rows})]
    if nan:
        missing = rows.copy()
        missing[random.random(rows.shape) < MISSING_SHARE] = np.nan
        found.append(("with missing values", {tensor.name: missing}))
    return found


def _thresholds(network: onnx.ModelProto, features: int) -> list[set[float]]:
    found: list[set[float]] = [set() for _ in range(features)]
    for node in network.graph.node:
        if node.op_type.startswith("TreeEnsemble"):
            given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
            pairs = zip(given["nodes_featureids"], given["nodes_values"], strict=True)
            modes: Sequence[bytes] = given["nodes_modes"]
            for (feature, value), mode in zip(pairs, modes, strict=True):
                if mode != b"LEAF" and feature < features:
                    found[feature].add(float(value))
    return found


def _between(random: np.random.Generator, thresholds: set[float]) -> Array:
    """Points halfway between neighbouring thresholds, one beyond each end included."""
    if not thresholds:
        return random.standard_normal(ROWS)
    ordered = np.sort(np.array([*thresholds]))
    reach = max(float(ordered[-1] - ordered[0]), 1.0)
    edges = np.concatenate([[ordered[0] - reach], ordered, [ordered[-1] + reach]])
    middles = (edges[:-1] + edges[1:]) / 2
    return random.choice(middles, ROWS)
