"""One inference over each protocol of a server with the stock client, for the examples' callers."""

from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from examples.arguments import Addresses

Arrays = Mapping[str, NDArray[Any]]


StreamResponse = tuple[tritonclient.grpc.InferResult | None, InferenceServerException | None]
"""A response of a stream, or its error."""


class Answer(NamedTuple):
    """What one protocol answered: the model's version, and the outputs asked for by name."""

    protocol: str
    version: str
    outputs: Arrays


def ask_both(
    addresses: Addresses, model: str, inputs: Arrays, outputs: Sequence[str]
) -> Iterator[Answer]:
    """Send the same request over REST, then over gRPC; arrays carry their batch dimension first.

    Raises `InferenceServerException` with the server's own message, or the client library's
    connection error when nobody listens.
    """
    protocols = (
        ("REST", tritonclient.http, addresses.http),
        ("gRPC", tritonclient.grpc, addresses.grpc),
    )
    for protocol, library, address in protocols:
        client = library.InferenceServerClient(address)
        try:
            result = client.infer(model, _inputs(library, inputs), model_version=addresses.version)
            yield Answer(
                protocol, _version(result), {name: result.as_numpy(name) for name in outputs}
            )
        finally:
            client.close()


def send_on_stream(
    client: tritonclient.grpc.InferenceServerClient,
    responses: "SimpleQueue[StreamResponse]",
    model: str,
    inputs: Sequence[tritonclient.grpc.InferInput],
    **options: Any,
) -> None:
    """Ask on a stream whose answers come into `responses`. Raises what ended the stream before."""
    try:
        client.async_stream_infer(model, inputs, **options)
    except InferenceServerException:
        _, error = responses.get(timeout=10)
        if error is not None:
            raise error from None
        raise


def _inputs(library: ModuleType, arrays: Arrays) -> list[Any]:
    made = []
    for name, array in arrays.items():
        tensor = library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(np.ascontiguousarray(array))
        made.append(tensor)
    return made


def _version(result: Any) -> str:
    response = result.get_response()
    return str(response["model_version"] if isinstance(response, dict) else response.model_version)
