"""Has texts gone on with, a character a request: `python -m examples.gru_text.call [TEXT ...]`."""

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http

from examples.arguments import Addresses, addresses_in, parser_for, run
from examples.gru_text.text import CHARACTERS, numbers_of
from examples.protocols import StreamResponse, send_on_stream

MODEL = "gru_text"
Step = Callable[[int, str, bool, bool], int]
"""Sends a character's number in a sequence, which may start or end with it; the next one's."""


def main() -> None:
    """Print how each text goes on, written beside the others; fail if the protocols differ."""
    parser = parser_for(__doc__)
    parser.add_argument("texts", nargs="*", default=["the owl", "the bear"])
    parser.add_argument("--characters", type=int, default=60, help="to write after each text")
    arguments = parser.parse_args()
    addresses, texts = addresses_in(arguments), list(arguments.texts)
    protocols = {"REST": over_rest, "gRPC": over_grpc, "stream": over_stream}
    found = {
        protocol: ask(addresses, texts, arguments.characters) for protocol, ask in protocols.items()
    }
    for protocol, written in found.items():
        for text, more in zip(texts, written, strict=True):
            print(f"{protocol}: {text}|{more}")
        if written != found["REST"]:
            raise SystemExit(f"{protocol} wrote something else than REST")


def over_rest(addresses: Addresses, texts: list[str], count: int) -> list[str]:
    with tritonclient.http.InferenceServerClient(addresses.http) as client:

        def step(number: int, key: str, start: bool, end: bool) -> int:
            tensor = filled(tritonclient.http.InferInput("CHAR", [1, 1], "INT32"), number)
            result = client.infer(
                MODEL, [tensor], sequence_id=key, sequence_start=start, sequence_end=end
            )
            return int(result.as_numpy("NEXT")[0, 0])

        return write(step, texts, count)


def over_grpc(addresses: Addresses, texts: list[str], count: int) -> list[str]:
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:

        def step(number: int, key: str, start: bool, end: bool) -> int:
            tensor = filled(tritonclient.grpc.InferInput("CHAR", [1, 1], "INT32"), number)
            result = client.infer(
                MODEL, [tensor], sequence_id=key, sequence_start=start, sequence_end=end
            )
            return int(result.as_numpy("NEXT")[0, 0])

        return write(step, texts, count)


def over_stream(addresses: Addresses, texts: list[str], count: int) -> list[str]:
    responses: SimpleQueue[StreamResponse] = SimpleQueue()
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))

        def step(number: int, key: str, start: bool, end: bool) -> int:
            tensor = filled(tritonclient.grpc.InferInput("CHAR", [1, 1], "INT32"), number)
            flags = {"sequence_id": key, "sequence_start": start, "sequence_end": end}
            send_on_stream(client, responses, MODEL, [tensor], **flags)
            result, error = responses.get(timeout=60)
            if result is None:
                raise error or RuntimeError("the stream ended")
            return int(result.as_numpy("NEXT")[0, 0])

        written = write(step, texts, count)
        client.stop_stream()
        return written


def write(step: Step, texts: list[str], count: int) -> list[str]:
    """Read each text and go on with it, all sequences in turn, a character at a time."""
    known = [numbers_of(text) for text in texts]
    length = [len(numbers) + count for numbers in known]
    for place in range(max(length) - 1):
        for text, numbers, most in zip(texts, known, length, strict=True):
            if place < most - 1:
                found = step(numbers[place], f"gru {text}", place == 0, place == most - 2)
                if place == len(numbers) - 1:
                    numbers.append(found)
    return [
        "".join(CHARACTERS[one] for one in numbers[len(text) :])
        for text, numbers in zip(texts, known, strict=True)
    ]


def filled(tensor: Any, number: int) -> Any:
    tensor.set_data_from_numpy(np.array([[number]], np.int32))
    return tensor


if __name__ == "__main__":
    run(main)
