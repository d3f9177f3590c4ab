"""How the network learns: AdamW over rows of stories, the rate rising, then falling."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy

from examples.stories.network import Network, Shape
from examples.stories.tokens import documents, encode


@dataclass(frozen=True, slots=True)
class Recipe:
    """How much is learnt, and how. The defaults take about six minutes of CPU time.

    `rows` rows of `length` tokens make a step.
    """

    seed: int = 1
    steps: int = 540
    rows: int = 4
    length: int = 512
    learning_rate: float = 4e-3
    warm_up: int = 40
    threads: int = 2


class Trained:
    """A network, and the mean loss (nats a token) of its last steps."""

    def __init__(self, network: Network, loss: float) -> None:
        self.network = network
        self.loss = loss


def train(
    tokenizer: Tokenizer,
    recipe: Recipe,
    shape: Shape | None = None,
    tell: Callable[[str], None] = print,
) -> Trained:
    """The same recipe gives the same network on the same machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            network = Network(shape or Shape(tokenizer.get_vocab_size()))
            loss = _learn(network, _batches(tokenizer, recipe), recipe, tell)
            return Trained(network.eval(), loss)
    finally:
        torch.set_num_threads(threads)


def rate_at(step: int, recipe: Recipe) -> float:
    """Up in a line over the first steps, down along a cosine to a twentieth."""
    if step < recipe.warm_up:
        return recipe.learning_rate * (step + 1) / recipe.warm_up
    left = (step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)
    return recipe.learning_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * left)) / 2)


def _learn(
    network: Network,
    batches: Iterator[Tensor],
    recipe: Recipe,
    tell: Callable[[str], None],
) -> float:
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.02
    )
    recent = 0.0
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, recipe)
        batch = next(batches)
        logits = network(batch[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        recent = loss.item() if step == 0 else 0.9 * recent + 0.1 * loss.item()
        if step == 0 or (step + 1) % 20 == 0 or step + 1 == recipe.steps:
            spent = time.process_time()
            tell(f"step {step + 1} of {recipe.steps}: loss {recent:.3f}, {spent:.0f} CPU seconds")
    return recent


def _batches(tokenizer: Tokenizer, recipe: Recipe) -> Iterator[Tensor]:
    """Rows cut from an endless run of fresh documents; no row is seen twice."""
    held: list[int] = []
    needed = recipe.rows * (recipe.length + 1)
    seed = recipe.seed * 1_000_003
    while True:
        while len(held) < needed:
            held += encode(tokenizer, list(documents(seed, 64)))
            seed += 1
        yield torch.tensor(held[:needed]).view(recipe.rows, -1)
        del held[:needed]
