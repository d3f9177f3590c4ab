"""Sends held-out digits to the server through both protocols: `python -m examples.digits.call`."""

import numpy as np

from examples.arguments import addresses_in, parser_for, run
from examples.digits.images import split
from examples.protocols import Answer, ask_both

SHOWN = 8


def main() -> None:
    """Print what each protocol read beside what was written."""
    parser = parser_for(__doc__)
    parser.add_argument("--images", type=int, default=64, help="held-out images to send, up to 64")
    arguments = parser.parse_args()
    written = split().held_out
    images = written.images[: arguments.images]
    for answer in ask_both(addresses_in(arguments), "digits", {"IMAGE": images}, ["LOGITS"]):
        report(answer, written.labels[: len(images)])


def report(answer: Answer, written: np.ndarray) -> None:
    """The first few digits, then how many of all were read right."""
    read = answer.outputs["LOGITS"].argmax(axis=1)
    print(f"{answer.protocol}: answered by version {answer.version}")
    for row, (label, truth) in enumerate(zip(read[:SHOWN], written[:SHOWN], strict=True)):
        print(f"  image {row}: read {label}, is {truth}{'' if label == truth else '   <- wrong'}")
    print(f"  {int((read == written).sum())} of {len(written)} right")


if __name__ == "__main__":
    run(main)
