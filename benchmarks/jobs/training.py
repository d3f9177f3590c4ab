"""Training of the networks whose conversion and int8 are measured: a minute or two of a core."""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate

from benchmarks.jobs.rows import Array

DECAY = 0.01


class TrainingPlan(NamedTuple):
    """Passes over the rows, and the highest rate of learning, which rises and falls once.

    quarter_size: passes before these over pictures of a quarter of the width, which take a
        sixteenth of the time. batch: rows of a step.
    """

    epochs: int
    learning_rate: float
    quarter_size: int = 0
    batch: int = 32

    @property
    def shares(self) -> list[float]:
        """Of the pictures' width, for each pass."""
        return [*[0.25] * self.quarter_size, *[1.0] * self.epochs]


def train_classifier(network: nn.Module, rows: Array, labels: Array, plan: TrainingPlan) -> None:
    """Train by AdamW and leave the network in evaluation; the same weights for the same rows.

    A Hugging Face model's answer is its logits.
    """
    torch.set_num_threads(1)
    network.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    inputs, targets = torch.from_numpy(rows), torch.from_numpy(labels)
    optimiser = torch.optim.AdamW(network.parameters(), lr=plan.learning_rate, weight_decay=DECAY)
    steps = len(rows) // plan.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, plan.learning_rate, len(plan.shares) * steps
    )
    shuffled = torch.Generator().manual_seed(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)  # of dropout
        for share in plan.shares:
            order = torch.randperm(len(rows), generator=shuffled)
            for at in range(steps):
                some = order[at * plan.batch : (at + 1) * plan.batch]
                batch = inputs[some] if share == 1 else _smaller(inputs[some], share)
                optimiser.zero_grad()
                loss = cross_entropy(_logits(network(batch)), targets[some])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
    network.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]


def _smaller(pictures: torch.Tensor, share: float) -> torch.Tensor:
    smaller = interpolate(pictures, scale_factor=share, mode="bilinear", align_corners=False)
    return smaller.contiguous(memory_format=torch.channels_last)


def _logits(answer: Any) -> torch.Tensor:
    found: torch.Tensor = answer if isinstance(answer, torch.Tensor) else answer.logits
    return found
