"""Writes a version of the story teller; see `examples.stories.train`, which has it done."""

from pathlib import Path

from examples.stories.checkpoint import save
from examples.stories.tokens import train_tokenizer
from examples.stories.training import Recipe, train

RECIPE = Recipe()


def build(version: int, folder: Path) -> None:
    """Train from scratch and write the checkpoint; minutes."""
    print("training the tokenizer; then the network, which takes about six minutes of CPU time")
    tokenizer = train_tokenizer(RECIPE.seed)
    save(train(tokenizer, RECIPE).network, tokenizer, folder)
