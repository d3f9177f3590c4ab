"""Gets back what it sends, through both protocols: `python -m examples.identity.call`."""

import numpy as np

from examples.arguments import addresses_in, parser_for, run
from examples.protocols import ask_both


def main() -> None:
    """Print what came back, and fail if it is not what was sent."""
    addresses = addresses_in(parser_for(__doc__).parse_args())
    sent = np.linspace(0, 1, 16, dtype=np.float32).reshape(1, 16)
    for answer in ask_both(addresses, "identity", {"INPUT0": sent}, ["OUTPUT0"]):
        back = answer.outputs["OUTPUT0"]
        print(f"{answer.protocol}: answered by version {answer.version}\n  {back.ravel().round(2)}")
        np.testing.assert_array_equal(back, sent)


if __name__ == "__main__":
    run(main)
