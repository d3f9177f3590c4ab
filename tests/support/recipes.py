"""A version with a recipe beside it: small digits made by a generator, and a network for them."""

import warnings
from pathlib import Path

RECIPE = '''"""Digits of eight by eight dots, drawn from ten patterns with noise."""

from pathlib import Path

import torch
from torch import Tensor, nn


def network(version: Path) -> nn.Module:
    made = _layers(16, 32)
    made.load_state_dict(torch.load(version / "weights.pt", weights_only=True))
    return made


def student(version: Path) -> nn.Module:
    return _layers(8, 12)


def _layers(first: int, second: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1), nn.BatchNorm2d(first), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1), nn.BatchNorm2d(second), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * second, 10),
    )


def batches(split: str, data: Path, seed: int):
    """10 batches of 32 images to learn from, 4 of 100 held out."""
    held_out = split == "held_out"
    draw = torch.Generator().manual_seed(1 if held_out else 1000 + seed)
    patterns = (torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    for _ in range(4 if held_out else 10):
        targets = torch.randint(10, (100 if held_out else 32,), generator=draw)
        noise = 0.5 * torch.randn(len(targets), 1, 8, 8, generator=draw)
        yield patterns[targets] + noise, targets
'''

CONFIG = """name: "dots"
backend: "onnxruntime"
max_batch_size: 64
input [ { name: "IMAGE" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] } ]
output [ { name: "LOGITS" data_type: TYPE_FP32 dims: [ 10 ] } ]
"""


def make_version(folder: Path, *, epochs: int = 4) -> Path:
    """Train the recipe's network (a second or two), and write the version; its folder."""
    import torch

    folder.mkdir(parents=True)
    (folder / "recipe.py").write_text(RECIPE)
    (folder / "config.pbtxt").write_text(CONFIG)
    recipe: dict[str, object] = {}
    exec(compile(RECIPE, "recipe.py", "exec"), recipe)
    torch.manual_seed(0)
    network = recipe["_layers"](16, 32)  # type: ignore[operator]
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for epoch in range(epochs):
        for images, targets in recipe["batches"]("train", folder, epoch):  # type: ignore[operator]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images), targets).backward()
            optimiser.step()
    network.eval()
    torch.save(network.state_dict(), folder / "weights.pt")
    axes = {"IMAGE": {0: "batch"}, "LOGITS": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, 1, 8, 8),), str(folder / "model.onnx"), dynamo=False,
            input_names=["IMAGE"], output_names=["LOGITS"], dynamic_axes=axes,
        )  # fmt: skip
    return folder
