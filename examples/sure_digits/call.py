"""Reads digits, dearly only where it is unsure: `python -m examples.sure_digits.call`."""

from collections.abc import Iterator
from queue import SimpleQueue

import numpy as np
import tritonclient.grpc
from numpy.typing import NDArray

from examples.arguments import Addresses, addresses_in, parser_for, run
from examples.digits.images import Digits, split
from examples.protocols import StreamResponse, ask_both, send_on_stream

MODEL, OUTPUTS, ROWS, UNSURE = "sure_digits", ("LOGITS", "CONFIDENCE"), 60, 0.7

Read = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Scores and confidences of all images."""


def main() -> None:
    """Print how many each of the networks reads right, and what share of images the ensemble gave
    to the dear one; fail if the protocols differ."""
    parser = parser_for(__doc__)
    arguments = parser.parse_args()
    addresses, written = addresses_in(arguments), split().held_out
    for name, version in (("cheap", "1"), ("dear", "2")):
        scores = alone(addresses._replace(version=version), written)
        print(f"{name} network alone: {right(scores, written):.1%} of {len(written.labels)} right")
    first: NDArray[np.float32] | None = None
    for protocol, (scores, confidences) in together(addresses, written).items():
        share = float((confidences < UNSURE).mean())
        print(f"{protocol}: answered {right(scores, written):.1%} right, dear for {share:.1%}")
        first = scores if first is None else first
        np.testing.assert_allclose(scores, first, atol=1e-4)


def alone(addresses: Addresses, written: Digits) -> NDArray[np.float32]:
    """The scores of one version of digits, over REST."""
    found = []
    for images in batches(written):
        answer = next(ask_both(addresses, "digits", {"IMAGE": images}, ["LOGITS"]))
        found.append(answer.outputs["LOGITS"])
    return np.concatenate(found)


def together(addresses: Addresses, written: Digits) -> dict[str, Read]:
    """What the ensemble answered, by protocol."""
    found: dict[str, list[Read]] = {}
    for images in batches(written):
        for answer in ask_both(addresses, MODEL, {"IMAGE": images}, OUTPUTS):
            part = answer.outputs["LOGITS"], answer.outputs["CONFIDENCE"]
            found.setdefault(answer.protocol, []).append(part)
    found["stream"] = list(streamed(addresses, written))
    return {
        protocol: (np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]))
        for protocol, parts in found.items()
    }


def streamed(addresses: Addresses, written: Digits) -> Iterator[Read]:
    """The same on one gRPC stream."""
    responses: SimpleQueue[StreamResponse] = SimpleQueue()
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        for images in batches(written):
            tensor = tritonclient.grpc.InferInput("IMAGE", list(images.shape), "FP32")
            tensor.set_data_from_numpy(images)
            send_on_stream(client, responses, MODEL, [tensor])
            result, error = responses.get(timeout=60)
            if result is None:
                raise error or RuntimeError("the stream ended")
            yield result.as_numpy("LOGITS"), result.as_numpy("CONFIDENCE")
        client.stop_stream()


def batches(written: Digits) -> Iterator[NDArray[np.float32]]:
    for begin in range(0, len(written.images), ROWS):
        yield written.images[begin : begin + ROWS]


def right(scores: NDArray[np.float32], written: Digits) -> float:
    """The share of images that were read right."""
    return float((scores.argmax(axis=1) == written.labels).mean())


if __name__ == "__main__":
    run(main)
