"""Has texts shouted through both protocols: `python -m examples.shout.call [TEXT ...]`."""

import numpy as np

from examples.arguments import addresses_in, parser_for, run
from examples.protocols import ask_both


def main() -> None:
    """Print each text in capitals with its length."""
    parser = parser_for(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT", default=["good morning", "größe"])
    arguments = parser.parse_args()
    texts = np.array([[text.encode("utf-8")] for text in arguments.texts], dtype=np.object_)
    outputs = ["SHOUTED", "LENGTH"]
    for answer in ask_both(addresses_in(arguments), "shout", {"TEXT": texts}, outputs):
        print(f"{answer.protocol}: answered by version {answer.version}")
        shouted, lengths = answer.outputs["SHOUTED"].ravel(), answer.outputs["LENGTH"].ravel()
        for text, loud, length in zip(arguments.texts, shouted, lengths, strict=True):
            print(f"  {text} -> {loud.decode('utf-8')} ({length} characters)")


if __name__ == "__main__":
    run(main)
