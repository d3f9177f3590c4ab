"""A CNN pruned and distilled: `python -m benchmarks.jobs.smaller_cnn`.

For each seed a network of 21 million multiply-adds an image is trained on scikit-learn's digits,
turned and moved on a canvas of 16 by 16. Then the tools run, each in a process of its own: half of
the channels are removed and the rest is trained, and a student with a quarter of the weights
learns from the network's file. Latency is of bare sessions of onnxruntime, 32 images a call, one
thread, by turns. Held-out accuracy is of 1,800 images drawn from 360 digits that no training saw.
"""

import argparse
import shutil
import statistics
import tempfile
import warnings
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from benchmarks.jobs import digits_recipe
from benchmarks.jobs.tool_runs import figure, run_tool
from control.jobs.report import Report
from control.jobs.specs.distil import DistilSpec
from control.jobs.specs.prune import PruneSpec

CONFIG = """name: "digits16"
backend: "onnxruntime"
max_batch_size: 256
input [ { name: "IMAGE" data_type: TYPE_FP32 dims: [ 1, 16, 16 ] } ]
output [ { name: "LOGITS" data_type: TYPE_FP32 dims: [ 10 ] } ]
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs.smaller_cnn", description=__doc__
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", choices=["pruned", "distilled"])
    parser.add_argument("--epochs", type=int, default=8, help="of the network itself")
    parser.add_argument("--tuning", type=int, default=8, help="epochs after the cut")
    parser.add_argument("--learning", type=int, default=16, help="epochs of the student")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    head()
    found: dict[str, list[Report]] = {"pruned": [], "distilled": []}
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch)
            source = trained(place / "source", seed, given.epochs)
            for name, spec in specs(given).items():
                report = run_tool(place / name, spec, source, threads=given.threads, seed=seed)
                found[name].append(report)
                row(f"{name}, seed {seed}", [report])
    for name, reports in found.items():
        if reports:
            row(f"{name}, mean", reports)


def specs(given: argparse.Namespace) -> dict[str, PruneSpec | DistilSpec]:
    """Of both jobs."""
    made: dict[str, PruneSpec | DistilSpec] = {
        "pruned": PruneSpec(
            model="digits16", version=1, amount=0.5, epochs=given.tuning, learning_rate=2e-3
        ),
        "distilled": DistilSpec(
            model="digits16", version=1, epochs=given.learning, learning_rate=4e-3, hard=0.3
        ),
    }
    return {name: spec for name, spec in made.items() if given.only in (None, name)}


def trained(folder: Path, seed: int, epochs: int) -> Path:
    """A version: the network's ONNX file, its weights and the recipe."""
    folder.mkdir()
    torch.manual_seed(seed)
    network = digits_recipe.layers(digits_recipe.WIDTHS)
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    steps = epochs * sum(1 for _ in digits_recipe.batches("train", folder, 0))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(epochs):
        for images, targets in digits_recipe.batches("train", folder, 100 * seed + epoch):
            optimiser.zero_grad()
            cross_entropy(network(images), targets).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    network.eval()
    torch.save(network.state_dict(), folder / "weights.pt")
    _export(network, folder / "model.onnx")
    (folder / "config.pbtxt").write_text(CONFIG)
    shutil.copyfile(str(digits_recipe.__file__), folder / "recipe.py")
    return folder


def _export(network: torch.nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(2, 1, 16, 16),), str(path), dynamo=False,
            input_names=["IMAGE"], output_names=["LOGITS"],
            dynamic_axes={"IMAGE": {0: "batch"}, "LOGITS": {0: "batch"}},
        )  # fmt: skip


def head() -> None:
    """Print the head of the table."""
    print("| network | accuracy, % | points lost | ms of 32 images | faster | parameters |")
    print("|---|---|---|---|---|---|", flush=True)


def row(name: str, reports: list[Report]) -> None:
    """Print means over reports."""
    accuracy = _means(reports, "held-out accuracy")
    latency = _means(reports, "latency")
    size = _means(reports, "parameters")
    faster = statistics.mean(
        before / after for before, after in (figure(one, "latency") for one in reports)
    )
    print(
        f"| {name} | {accuracy[0]:.2f} to {accuracy[1]:.2f} | {accuracy[0] - accuracy[1]:+.2f} | "
        f"{latency[0]:.2f} to {latency[1]:.2f} | {faster:.2f} times | "
        f"{size[0]:,.0f} to {size[1]:,.0f} |",
        flush=True,
    )


def _means(reports: list[Report], name: str) -> tuple[float, float]:
    pairs = [figure(one, name) for one in reports]
    return statistics.mean(one for one, _ in pairs), statistics.mean(one for _, one in pairs)


if __name__ == "__main__":
    main()
