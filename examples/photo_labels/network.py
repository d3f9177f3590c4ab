"""The network behind the photographs: how it is made up, and how it learns."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from examples.photo_labels.photographs import LABELS, pictures

SEED, COUNT, EPOCHS, BATCH = 18, 100, 12, 32


def network_of() -> nn.Module:
    """A CNN from FP32 [batch, 3, 64, 64], 0 to 1, to logits FP32 [batch, 4]."""
    layers: list[nn.Module] = []
    channels = 3
    for wider in (12, 24, 32):
        layers += [nn.Conv2d(channels, wider, 5, stride=2, padding=2), nn.ReLU()]
        channels = wider
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(LABELS))
    )


def trained() -> nn.Module:
    """Trained on one core (seconds), the same on every run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return _train(network_of()).eval()
    finally:
        torch.set_num_threads(threads)


def _train(network: nn.Module) -> nn.Module:
    training = pictures(COUNT, SEED)
    images = torch.from_numpy(training.pixels).permute(0, 3, 1, 2) / 255
    labels = torch.from_numpy(training.labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network
