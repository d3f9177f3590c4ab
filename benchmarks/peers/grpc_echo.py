"""The bare limit of grpcio: a ModelInfer that parses, echoes and serialises, on asyncio or threads.

`python -m benchmarks.peers.grpc_echo asyncio|threads PORT` serves it until SIGTERM.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelInferResponse

from benchmarks.peers.seam import Peer
from benchmarks.process import free_addresses, is_listening, port_of, running

SERVICE = "inference.GRPCInferenceService"
OUTPUT = "OUTPUT0"
KINDS = ("asyncio", "threads")
THREADS = 8


@contextmanager
def started(kind: str, cache: Path) -> Iterator[Peer]:
    """The echo of one kind in a process of its own; raises `PeerFailed`."""
    name = f"bare grpcio {kind}"
    (address,) = free_addresses(1)
    command = [sys.executable, "-m", "benchmarks.peers.grpc_echo", kind, port_of(address)]
    log = cache / "logs" / f"grpc_echo_{kind}.log"
    with running(name, command, log, lambda: is_listening(address)) as process:
        yield Peer(name, process, "", address)


def main() -> None:
    """Serve the kind named on the command line."""
    kind, port = sys.argv[1:]
    if kind == "asyncio":
        uvloop.run(_serve_asyncio(port))
    else:
        _serve_threads(port)


async def _serve_asyncio(port: str) -> None:
    async def infer(request: ModelInferRequest, _: object) -> ModelInferResponse:
        return _echo(request)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_service(infer),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop(None)


def _serve_threads(port: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = grpc.server(ThreadPoolExecutor(THREADS))
    server.add_generic_rpc_handlers((_service(lambda request, _: _echo(request)),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    stop.wait()
    server.stop(None).wait()


def _service(infer: Callable[..., Any]) -> "grpc.GenericRpcHandler[Any, Any]":
    method = grpc.unary_unary_rpc_method_handler(
        infer,
        request_deserializer=ModelInferRequest.FromString,
        response_serializer=ModelInferResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": method})


def _echo(request: ModelInferRequest) -> ModelInferResponse:
    sent = request.inputs[0]
    response = ModelInferResponse(
        model_name=request.model_name,
        model_version="1",
        id=request.id,
        raw_output_contents=request.raw_input_contents,
    )
    response.outputs.add(name=OUTPUT, datatype=sent.datatype, shape=sent.shape)
    return response


if __name__ == "__main__":
    main()
