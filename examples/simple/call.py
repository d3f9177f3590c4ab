"""Adds and subtracts two vectors through both protocols: `python -m examples.simple.call`."""

import numpy as np

from examples.arguments import addresses_in, parser_for, run
from examples.protocols import ask_both


def main() -> None:
    """Print the sums and the differences, and fail if one is wrong."""
    addresses = addresses_in(parser_for(__doc__).parse_args())
    first = np.arange(16, dtype=np.int32).reshape(1, 16)
    second = np.ones((1, 16), np.int32)
    inputs = {"INPUT0": first, "INPUT1": second}
    for answer in ask_both(addresses, "simple", inputs, ["OUTPUT0", "OUTPUT1"]):
        total, difference = answer.outputs["OUTPUT0"], answer.outputs["OUTPUT1"]
        print(f"{answer.protocol}: answered by version {answer.version}")
        for left, right, plus, minus in zip(
            *map(np.ravel, (first, second, total, difference)), strict=True
        ):
            print(f"  {left} + {right} = {plus}    {left} - {right} = {minus}")
        np.testing.assert_array_equal(total, first + second)
        np.testing.assert_array_equal(difference, first - second)


if __name__ == "__main__":
    run(main)
