"""Has numbers repeated one by one over a gRPC stream: `python -m examples.repeat.call [N ...]`."""

from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import np_to_triton_dtype

from examples.arguments import addresses_in, parser_for, run
from examples.protocols import StreamResponse, send_on_stream


def main() -> None:
    """Print each number as it comes."""
    parser = parser_for(__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="N", default=[4, 2, 0, 1])
    parser.add_argument("--delay-ms", type=int, default=100, help="pause before each number")
    arguments = parser.parse_args()
    addresses = addresses_in(arguments)
    responses: SimpleQueue[StreamResponse] = SimpleQueue()
    with InferenceServerClient(addresses.grpc) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        count = len(arguments.numbers)
        inputs = [
            _input("IN", np.array(arguments.numbers, np.int32)),
            _input("DELAY", np.full(count, arguments.delay_ms, np.uint32)),
            _input("WAIT", np.zeros(1, np.uint32)),
        ]
        send_on_stream(client, responses, "repeat", inputs, enable_empty_final_response=True)
        while _print_next(responses):
            pass


def _input(name: str, array: NDArray[np.generic]) -> InferInput:
    tensor = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


def _print_next(responses: "SimpleQueue[StreamResponse]") -> bool:
    """Print the next response; False when it was the last. Raises the server's error."""
    result, error = responses.get()
    if error is not None:
        raise error
    assert result is not None
    response = result.get_response()
    if response.outputs:
        print(f"response {result.as_numpy('IDX')[0]}: {result.as_numpy('OUT')[0]}", flush=True)
    return not response.parameters["triton_final_response"].bool_param


if __name__ == "__main__":
    run(main)
