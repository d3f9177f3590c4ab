"""Embeds texts of different lengths at once: `python -m examples.ragged_embedding.call`."""

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from examples.arguments import Addresses, addresses_in, parser_for, run
from examples.protocols import ask_both
from examples.ragged_embedding.tokens import tokens_of

TEXTS = (
    "The cat sleeps on the warm stove.",
    "On the stove, warm and round, sleeps the cat of the house.",
    "Share prices fell sharply.",
    "After a quiet morning share prices fell sharply in the afternoon, and rose again by evening.",
)
MODEL, OUTPUT = "ragged_embedding", "embedding"
Vectors = dict[str, NDArray[np.float32]]


def main() -> None:
    """Print how near the texts are to each other, and fail if a text's neighbours in its batch
    have changed its embedding."""
    parser = parser_for(__doc__)
    parser.add_argument("texts", nargs="*", default=TEXTS, help="what to embed")
    arguments = parser.parse_args()
    addresses, texts = addresses_in(arguments), list(arguments.texts)
    with ThreadPoolExecutor(len(texts)) as pool:
        together = list(pool.map(lambda text: embedded(addresses, text), texts))
    for text, found in zip(texts, together, strict=True):
        for protocol, vector in embedded(addresses, text).items():
            np.testing.assert_allclose(found[protocol], vector, atol=1e-5)
    for protocol in together[0]:
        print(f"{protocol}: answered {len(texts)} texts of {lengths(texts)} tokens")
        for one, other in combinations(range(len(texts)), 2):
            near = float(together[one][protocol] @ together[other][protocol])
            print(f"  {near:5.2f}  {texts[one]} | {texts[other]}")


def embedded(addresses: Addresses, text: str) -> Vectors:
    """The text's vector of length 1, by the protocol that answered."""
    ids = np.array([tokens_of(text)])
    answers = ask_both(addresses, MODEL, {"ids": ids}, [OUTPUT])
    return {answer.protocol: answer.outputs[OUTPUT][0] for answer in answers}


def lengths(texts: list[str]) -> str:
    """ "6, 11 and 4"."""
    *most, last = [str(len(tokens_of(text))) for text in texts]
    return f"{', '.join(most)} and {last}" if most else last


if __name__ == "__main__":
    run(main)
