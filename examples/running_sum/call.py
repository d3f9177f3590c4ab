"""Sums numbers of several sequences side by side: `python -m examples.running_sum.call [N ...]`."""

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput

from examples.arguments import addresses_in, parser_for, run


def main() -> None:
    """Print the sums of two sequences as they grow, and fail if one is wrong."""
    parser = parser_for(__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="N", default=[4, 2, 0, 1])
    arguments = parser.parse_args()
    addresses, numbers = addresses_in(arguments), arguments.numbers
    with InferenceServerClient(addresses.http) as client:
        sums = {"up": 0, "down": 0}
        for place, number in enumerate(numbers):
            for key, sign in (("up", 1), ("down", -1)):
                sums[key] += sign * number
                got = _send(client, key, sign * number, place, len(numbers))
                print(f"sequence '{key}': {sign * number:+d} makes {got}")
                if got != sums[key]:
                    raise SystemExit(f"the sum should be {sums[key]}")


def _send(client: InferenceServerClient, key: str, number: int, place: int, count: int) -> int:
    tensor = InferInput("INPUT", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[number]], np.int32))
    result = client.infer(
        "running_sum",
        [tensor],
        sequence_id=key,
        sequence_start=place == 0,
        sequence_end=place == count - 1,
    )
    return int(result.as_numpy("OUTPUT")[0, 0])


if __name__ == "__main__":
    run(main)
