"""Prune a version by its recipe: cut, train, compare, write."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from control.jobs.report import Figure, Report
from control.jobs.specs.prune import PruneSpec
from jobs.tools.prune.channels import ChannelCutter
from jobs.tools.prune.masks import MaskCutter
from jobs.tools.training.judgement import Judge
from jobs.tools.training.loop import Loss, Schedule, Trainer
from jobs.tools.training.recipe import Batch, Recipe
from jobs.tools.training.version import SourceVersion, rows_of
from jobs.tools.work import Work, refuse

NO_SPEED = (
    "weights that are zero give no speed on a CPU: the same network is computed, and only a "
    "compressed file is smaller; method 'structured' makes networks faster"
)
MEASURED = (0.05, 0.95)
"""Share of the progress after the source is measured, and before the result is."""


class Cutter(Protocol):
    """Cuts a network in place, one stage at a time. Raises WorkRefused."""

    def cut(self) -> None:
        """Do one stage."""


def run(work: Work) -> Report:
    """Raises WorkRefused for a recipe or a network that cannot be used."""
    spec = work.task.spec
    assert isinstance(spec, PruneSpec)
    torch.manual_seed(work.task.seed)
    torch.set_num_threads(work.task.threads)
    work.progress(0.0, "loading the recipe and measuring the version")
    recipe = Recipe(work.task, spec)
    version = SourceVersion(work.task, spec)
    network = recipe.network()
    judge = Judge(work, spec, recipe, version)
    before = judge.source(network)
    work.point("held-out accuracy", 0, before.accuracy)
    cut = _cut_and_train(work, spec, recipe, network)
    work.progress(MEASURED[1], "exporting and measuring the result")
    after = judge.result(network)
    drop = Figure("held-out accuracy right after the cuts", "%", None, 100 * cut, "higher")
    warnings = () if spec.method == "structured" else (NO_SPEED,)
    title = f"Prune {spec.model} ({_title(spec)})"
    return judge.report(title, before, after, [drop], warnings)


def _cut_and_train(work: Work, spec: PruneSpec, recipe: Recipe, network: nn.Module) -> float:
    """All stages; the lowest accuracy that a cut left before it was trained away."""
    cutter, after_step = _cutter(spec, recipe, network)
    trainer = Trainer(work, recipe, _loss(recipe))
    lowest, done = 1.0, 0
    for stage in range(spec.stages):
        cutter.cut()
        network.eval()
        left = recipe.accuracy(network)
        lowest = min(lowest, left)
        work.note(f"cut {stage + 1} of {spec.stages}: held-out accuracy {left:.4f}")
        work.point("held-out accuracy", done, left)
        epochs = spec.epochs * (stage + 1) // spec.stages - done
        begin, end = MEASURED
        share = (begin + (end - begin) * done / max(1, spec.epochs),
                 begin + (end - begin) * (done + epochs) / max(1, spec.epochs))  # fmt: skip
        trainer.train(
            network, Schedule(epochs, spec.learning_rate, work.task.seed, done, share), after_step
        )
        done += epochs
    return lowest


def _cutter(
    spec: PruneSpec, recipe: Recipe, network: nn.Module
) -> tuple[Cutter, Callable[[], None]]:
    """What cuts, and what is to be done after each step of training."""
    if spec.method == "structured":
        example = rows_of(recipe.example(), 2)
        return ChannelCutter(network, example, spec), lambda: None
    masks = MaskCutter(network, spec)
    return masks, masks.apply


def _loss(recipe: Recipe) -> Loss:
    def loss(network: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        if targets is None:
            refuse(f"{recipe.path.name}: batches('train') gave inputs without targets")
        return recipe.loss(recipe.forward(network, inputs), targets)

    return loss


def _title(spec: PruneSpec) -> str:
    return "2:4" if spec.method == "2:4" else f"{spec.method}, {100 * spec.amount:g} %"
