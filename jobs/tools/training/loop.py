"""The training loop: AdamW along a cosine, its loss and accuracy as live curves."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jobs.tools.training.recipe import Batch, Recipe
from jobs.tools.work import Work, refuse

WARM_UP = 0.05
"""Share of all steps in which the rate rises."""
LOWEST = 0.01
CLIP = 5.0
POINTS_PER_EPOCH = 50
"""Of the loss's curve: each is the mean since the last."""

Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, slots=True)
class Schedule:
    """`epochs` passes from `first` on, at rates up to `learning_rate`; `share`: of the job's
    progress, from and to."""

    epochs: int
    learning_rate: float
    seed: int
    first: int = 0
    share: tuple[float, float] = (0.0, 1.0)


class Trainer:
    """Trains one network of a recipe; `after_step` may put weights back to zero."""

    def __init__(self, work: Work, recipe: Recipe, loss: Loss) -> None:
        self._work = work
        self._recipe = recipe
        self._loss = loss
        self._step = 0
        self._counted = 0

    def train(
        self, network: nn.Module, schedule: Schedule, after_step: Callable[[], None] = lambda: None
    ) -> None:
        """Raises WorkRefused when the loss is no number any more, naming the step."""
        if not schedule.epochs:
            return
        optimiser = torch.optim.AdamW(network.parameters(), lr=0.0, weight_decay=1e-4)
        steps, batches = 0, self._batches(schedule.seed)
        total, every = batches * schedule.epochs, max(1, batches // POINTS_PER_EPOCH)
        for epoch in range(schedule.epochs):
            network.train()
            recent: list[float] = []
            for batch in self._recipe.batches("train", schedule.seed + schedule.first + epoch):
                rate = schedule.learning_rate * rate_share(steps, total)
                recent.append(self._learn(network, batch, optimiser, rate))
                after_step()
                steps += 1
                if len(recent) == every:
                    self._work.point("loss", self._step, sum(recent) / every)
                    recent.clear()
            self._tell(network, schedule, epoch)

    def _batches(self, seed: int) -> int:
        """Of one epoch, counted once; a recipe may give a few more or less in another."""
        if not self._counted:
            self._counted = sum(1 for _ in self._recipe.batches("train", seed))
        return self._counted

    def _learn(
        self, network: nn.Module, batch: Batch, optimiser: torch.optim.Optimizer, rate: float
    ) -> float:
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss = self._loss(network, batch)
        value = float(loss.detach())
        self._step += 1
        if not math.isfinite(value):
            refuse(
                f"{self._recipe.path.name}: the loss is {value} at training step {self._step}; a "
                "smaller learning_rate, or data without NaN, would help"
            )
        self._backward(loss)
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        return value

    def _backward(self, loss: Tensor) -> None:
        if not loss.requires_grad:
            refuse(
                f"{self._recipe.path.name}: the loss does not depend on the network's weights; "
                "network or loss may detach them, or have no parameters that require gradients"
            )
        loss.backward()  # type: ignore[no-untyped-call]

    def _tell(self, network: nn.Module, schedule: Schedule, epoch: int) -> None:
        network.eval()
        accuracy = self._recipe.accuracy(network)
        done = schedule.first + epoch + 1
        self._work.point("held-out accuracy", done, accuracy)
        begin, end = schedule.share
        fraction = begin + (end - begin) * (epoch + 1) / schedule.epochs
        self._work.progress(fraction, f"epoch {done}: held-out accuracy {accuracy:.4f}")


def rate_share(step: int, steps: int) -> float:
    """Of the highest rate: up in a line, down along a cosine to LOWEST."""
    rising = max(1, int(steps * WARM_UP))
    if step < rising:
        return (step + 1) / rising
    left = min(1.0, (step - rising) / max(1, steps - rising))
    return LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * left)) / 2
