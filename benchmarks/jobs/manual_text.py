"""A small language model of this project's own manual: English of which it cannot know all."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy

from examples.stories.network import Network, Shape
from examples.stories.training import Recipe, rate_at

VOCABULARY = 2048
HELD_OUT = 10
"""One paragraph of so many is never trained on."""
SPECIAL = ("<|begin|>", "<|end|>")


def paragraphs() -> tuple[list[str], list[str]]:
    """Those to learn from, and those held out, in an order of their own."""
    folder = Path(__file__).resolve().parents[2] / "docs"
    files = sorted([*folder.glob("*.md"), *folder.glob("tutorials/*.md")])
    texts = [part.replace("\n", " ") for one in files for part in one.read_text().split("\n\n")]
    long = [one + " " for one in texts if len(one) > 80]
    Random(1).shuffle(long)
    cut = len(long) // HELD_OUT
    return long[cut:], long[:cut]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_network(tokenizer: Tokenizer, texts: list[str], shape: Shape, recipe: Recipe) -> Network:
    """AdamW at the rates of the recipe, over rows of paragraphs strung together."""
    torch.manual_seed(recipe.seed)
    network = Network(shape)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.02
    )
    batches = _batches(tokenizer, texts, recipe)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step, recipe)
        batch = next(batches)
        loss = cross_entropy(network(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
    return network.eval()


def _batches(tokenizer: Tokenizer, texts: list[str], recipe: Recipe) -> Iterator[Tensor]:
    tokens = torch.tensor([one for part in tokenizer.encode_batch(texts) for one in part.ids])
    draw = torch.Generator().manual_seed(recipe.seed)
    while True:
        starts = torch.randint(len(tokens) - recipe.length - 1, (recipe.rows,), generator=draw)
        yield torch.stack([tokens[at : at + recipe.length + 1] for at in starts.tolist()])
