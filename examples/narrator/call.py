"""Has held-out digits read and announced: `python -m examples.narrator.call`."""

from examples.arguments import addresses_in, parser_for, run
from examples.digits.images import split
from examples.protocols import ask_both


def main() -> None:
    """Print what each protocol says of the first images."""
    parser = parser_for(__doc__)
    parser.add_argument("--images", type=int, default=2, help="held-out images to send")
    arguments = parser.parse_args()
    addresses = addresses_in(arguments)
    for image in split().held_out.images[: arguments.images]:
        outputs = ["DIGIT", "LINE", "STORY"]
        for answer in ask_both(addresses, "narrator", {"IMAGE": image}, outputs):
            digit, line, story = (answer.outputs[name][0] for name in outputs)
            told = story.decode() or "(start the example stories for a story)"
            print(f"{answer.protocol}: {digit}: {line.decode()}. {told}")


if __name__ == "__main__":
    run(main)
