"""How much a language model forgets in fewer bits: `python -m benchmarks.llm_perplexity FOLDER`.

Perplexity of a checkpoint at each precision, of the text of `--text FILE`, else of stories that the
example model was not trained on. Documents are scored whole, each from its beginning.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from backends.llm.load import LoadedModel, LoadSettings, load
from backends.llm.ops.seam import Precision
from backends.llm.span import Span
from examples.stories.tokens import documents

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8", "int4")
BUDGET = 4 << 30
UNSEEN = 987_654_321
"""A seed the training does not use."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.llm_perplexity", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="a Hugging Face checkpoint")
    parser.add_argument("--text", type=Path, help="a document a line")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--budget", type=int, default=BUDGET, help="bytes the model may take")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lines = given.text.read_text().splitlines() if given.text else []
    texts = lines[: given.documents] or list(documents(UNSEEN, given.documents))
    print("| precision | computed by | perplexity | more than float32 |\n|---|---|---|---|")
    first = 0.0
    for precision in PRECISIONS:
        model = load(given.folder, LoadSettings(given.budget, precision=precision))
        found = perplexity(model, texts)
        first = first or found
        print(f"| {precision} | {model.ops} | {found:.4f} | {100 * (found / first - 1):.2f} % |")


def perplexity(model: LoadedModel, texts: Sequence[str]) -> float:
    """The exponential of the mean negative log-probability of every token but each text's first."""
    total, count = 0.0, 0
    for text in texts:
        for logprob in _scored(model, text):
            total -= logprob
            count += 1
    return math.exp(total / count)


def _scored(model: LoadedModel, text: str) -> Iterator[float]:
    tokens = model.tokeniser.encode(text, special=False)[: model.context]
    blocks = range(-(-len(tokens) // 16))
    span = Span(tokens, 0, blocks, len(tokens), score_prompt=0)
    (result,) = model.runner.run([span], [None])
    return (one.logprob for one in result.prompt)


if __name__ == "__main__":
    main()
