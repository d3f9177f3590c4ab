"""Sends held-out digits to `digits_torch`: `python -m examples.digits_torch.call`."""

from examples.arguments import addresses_in, parser_for, run
from examples.digits.call import report
from examples.digits.images import split
from examples.protocols import ask_both

IMAGES = 64


def main() -> None:
    """The caller of `digits`, with this model's name."""
    addresses = addresses_in(parser_for(__doc__).parse_args())
    written = split().held_out
    images, labels = written.images[:IMAGES], written.labels[:IMAGES]
    for answer in ask_both(addresses, "digits_torch", {"IMAGE": images}, ["LOGITS"]):
        report(answer, labels)


if __name__ == "__main__":
    run(main)
