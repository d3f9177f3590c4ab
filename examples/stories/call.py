"""Asks the story teller: `python -m examples.stories.call [--animal fox]`.

With the stock `openai` client, word by word as it is told, where that client is installed; then
over gRPC with `tritonclient`, as a decoupled model.
"""

from argparse import Namespace
from importlib.util import find_spec
from queue import SimpleQueue

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput

from examples.arguments import addresses_in, parser_for, run
from examples.protocols import StreamResponse, send_on_stream

BEGINNING = "Once upon a time"


def main() -> None:
    parser = parser_for(__doc__)
    parser.add_argument("--animal", default="a fox", help='whom the story is about ("an owl")')
    parser.add_argument("--model", default="stories", help="another language model's name")
    parser.add_argument("--token", default="none", help="where the server asks for tokens")
    arguments = parser.parse_args()
    addresses = addresses_in(arguments)
    if find_spec("openai") is None:
        print("(the openai client is not installed: pip install openai)")
    else:
        chat(addresses.http, arguments)
    go_on(addresses.grpc, arguments.model, addresses.version)


def chat(address: str, arguments: Namespace) -> None:
    """A question, and the answer as it comes, as any program written for OpenAI's API asks."""
    from openai import APIConnectionError, OpenAI

    client = OpenAI(base_url=f"http://{address}/v1", api_key=arguments.token)
    try:
        stream = client.chat.completions.create(
            model=arguments.model,
            messages=[{"role": "user", "content": f"Tell me a story about {arguments.animal}."}],
            temperature=0.7,
            max_tokens=200,
            stream=True,
        )
    except APIConnectionError as error:
        raise ConnectionError(f"{address}: {error}") from error
    print("OpenAI: ", end="")
    for event in stream:
        if event.choices:
            print(event.choices[0].delta.content or "", end="", flush=True)
    print()


def go_on(address: str, model: str, version: str) -> None:
    """A beginning, and how it goes on, over a gRPC stream."""
    responses: SimpleQueue[StreamResponse] = SimpleQueue()
    with InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        inputs = [
            _input("text_input", np.array([BEGINNING.encode()], object), "BYTES"),
            _input("stream", np.array([True]), "BOOL"),
            _input("sampling_parameters", np.array([b'{"max_tokens": 200}'], object), "BYTES"),
            _input("exclude_input_in_output", np.array([True]), "BOOL"),
        ]
        options = {"model_version": version, "enable_empty_final_response": True}
        send_on_stream(client, responses, model, inputs, **options)
        print(f"gRPC: {BEGINNING}", end="")
        while _print_next(responses):
            pass
        print()


def _input(name: str, array: np.ndarray, datatype: str) -> InferInput:
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def _print_next(responses: "SimpleQueue[StreamResponse]") -> bool:
    """Print the next piece; False after the last. Raises the server's error."""
    result, error = responses.get()
    if error is not None:
        raise error
    assert result is not None
    text = result.as_numpy("text_output")
    if text is not None:
        print(text[0].decode(), end="", flush=True)
    return not result.get_response().parameters["triton_final_response"].bool_param


if __name__ == "__main__":
    run(main)
