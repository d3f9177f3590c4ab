"""The digits networks: how each version is made up, and how it learns."""

from functools import cache
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from examples.digits.images import split


class Recipe(NamedTuple):
    """How to make one version: from which seed, with how many channels, for how long."""

    seed: int
    channels: int
    epochs: int
    learning_rate: float


RECIPES = {
    1: Recipe(seed=1, channels=2, epochs=4, learning_rate=2e-3),
    2: Recipe(seed=2, channels=16, epochs=25, learning_rate=2e-3),
    3: Recipe(seed=3, channels=16, epochs=25, learning_rate=2e-3),
}
BATCH = 32


def network_of(channels: int) -> nn.Module:
    """A CNN from FP32 [batch, 1, 8, 8] to logits FP32 [batch, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, 10),
    )


@cache
def trained(version: int) -> nn.Module:
    """The network of one version, trained on one core (seconds), the same on every run."""
    recipe = RECIPES[version]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            return _train(network_of(recipe.channels), recipe).eval()
    finally:
        torch.set_num_threads(threads)


def _train(network: nn.Module, recipe: Recipe) -> nn.Module:
    training = split().training
    images, labels = torch.from_numpy(training.images), torch.from_numpy(training.labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate, weight_decay=1e-4)
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(network(images[rows]), labels[rows]).backward()
            optimizer.step()
    return network
