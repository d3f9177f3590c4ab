"""Random networks made to classify: their last layer is fitted, by one solution of equations.

A network of random weights whose classifier is fitted answers with real margins, as a trained one
does, and takes seconds to make.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.jobs.rows import Array

BATCH, STATISTICS_BATCHES = 32, 8
RIDGE = 30.0
LEAST_SPREAD = 0.05
"""Of a feature, as a share of the widest one's: narrower ones would get weights that enlarge the
rounding errors of the whole network."""


def settle_statistics(network: nn.Module, rows: Array) -> None:
    """Let batch normalisations see rows, so that activations keep their scale; then evaluate."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean of all batches
    network.train()
    with torch.no_grad():
        for start in range(0, STATISTICS_BATCHES * BATCH, BATCH):
            network(torch.from_numpy(rows[start : start + BATCH]))
    network.eval()


def fit_classifier(
    classifier: nn.Linear, features: Callable[[torch.Tensor], torch.Tensor], rows: Array,
    labels: Array,
) -> None:  # fmt: skip
    """Ridge regression of one-hot classes on the features that the network computes."""
    with torch.no_grad():
        parts = [
            features(torch.from_numpy(rows[start : start + BATCH])).numpy()
            for start in range(0, len(rows), BATCH)
        ]
    found = np.concatenate(parts).astype(np.float64)
    mean, spread = found.mean(axis=0), found.std(axis=0)
    spread = np.maximum(spread, LEAST_SPREAD * spread.max())
    scaled = np.hstack([(found - mean) / spread, np.ones((len(found), 1))])
    wanted = 10 * np.eye(classifier.out_features)[labels]
    gram = scaled.T @ scaled + RIDGE * np.eye(scaled.shape[1])
    solution = np.linalg.solve(gram, scaled.T @ wanted)
    weight = solution[:-1].T / spread
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(weight))
        classifier.bias.copy_(torch.from_numpy(solution[-1] - weight @ mean))
