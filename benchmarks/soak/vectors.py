"""Requests to models of vectors, through Triton's clients, each held against the model's answer."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, Queue
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, shared_memory

from benchmarks.soak.outcome import Hung, Lost, Refused, Wrong

LIMIT_S = 60.0
"""After which a client gives up: long enough to tell late answers from none."""
RESPONSES = 40
"""Of the decoupled model `several`, 50 ms apart."""
MODELS = ("echo", "double", "turn", "split-route", "shop")


class Vectors:
    """One thread's clients."""

    def __init__(self, rest: str, wire: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._http = tritonclient.http.InferenceServerClient(
            rest, connection_timeout=LIMIT_S, network_timeout=LIMIT_S
        )
        self._grpc = tritonclient.grpc.InferenceServerClient(wire)
        self._wire = wire
        self._region = f"soak-{os.getpid()}-{seed}"

    def close(self) -> None:
        self._http.close()
        self._grpc.close()

    def rest_json(self) -> str:
        return self._over_rest(binary=False)

    def rest_binary(self) -> str:
        return self._over_rest(binary=True)

    def rest_simple(self) -> str:
        """An ONNX model: sum and difference."""
        a, b = (np.array([self._numbers(16)], np.int32) for _ in range(2))
        inputs = [_rest_input("INPUT0", a, True), _rest_input("INPUT1", b, False)]
        with _told():
            answer = self._http.infer("simple", inputs)
        _check(answer.as_numpy("OUTPUT0"), a + b, "simple")
        _check(answer.as_numpy("OUTPUT1"), a - b, "simple")
        return "right"

    def grpc_unary(self) -> str:
        model, sent = self._pick()
        with _told():
            answer = self._grpc.infer(model, [_grpc_input(sent)], client_timeout=LIMIT_S)
        version = answer.get_response().model_version
        _check(answer.as_numpy("OUTPUT0"), _expected(model, version, sent), f"{model}:{version}")
        return "right"

    def grpc_cancelled(self) -> str:
        """Asks the model that takes two seconds, and leaves."""
        parts: Queue[Any] = Queue()
        with tritonclient.grpc.InferenceServerClient(self._wire) as client, _told():
            client.start_stream(partial(_keep, parts))
            client.async_stream_infer("several", [_grpc_input(np.ones((1, 2), np.float32))])
            for _ in range(self._random.randrange(RESPONSES)):
                _next(parts)
            client.stop_stream(cancel_requests=True)
        return "cancelled"

    def grpc_stream(self) -> str:
        """Several requests on one ModelStreamInfer, all to the decoupled model."""
        parts: Queue[Any] = Queue()
        asked = self._random.randint(1, 3)
        sent = np.array([self._numbers(4)], np.float32)
        with tritonclient.grpc.InferenceServerClient(self._wire) as client, _told():
            client.start_stream(partial(_keep, parts))
            for number in range(asked):
                client.async_stream_infer(
                    "several", [_grpc_input(sent + number)], request_id=str(number)
                )
            for _ in range(asked * RESPONSES):
                part = _next(parts)
                number = int(part.get_response().id)
                _check(part.as_numpy("OUTPUT0"), sent + number, "several")
            client.stop_stream()
        if not parts.empty():
            raise Wrong(f"several: more than {asked * RESPONSES} responses")
        return "right"

    def shared_memory(self) -> str:
        """Input and output in one region of system shared memory."""
        sent = np.array([self._numbers(64)], np.float32)
        model = self._random.choice(("echo", "double"))
        size = sent.nbytes
        region = shared_memory.create_shared_memory_region(
            self._region, f"/{self._region}", 2 * size
        )
        try:
            shared_memory.set_shared_memory_region(region, [sent])
            with _told():
                self._grpc.register_system_shared_memory(
                    self._region, f"/{self._region}", 2 * size, client_timeout=LIMIT_S
                )
                try:
                    self._infer_in_region(model, sent.shape, size)
                finally:
                    self._grpc.unregister_system_shared_memory(self._region, client_timeout=LIMIT_S)
            got = shared_memory.get_contents_as_numpy(region, np.float32, list(sent.shape), size)
            _check(np.array(got), (2 if model == "double" else 1) * sent, f"{model} in memory")
        finally:
            shared_memory.destroy_shared_memory_region(region)
        return "right"

    def _infer_in_region(self, model: str, shape: tuple[int, ...], size: int) -> None:
        source = tritonclient.grpc.InferInput("INPUT0", list(shape), "FP32")
        source.set_shared_memory(self._region, size)
        target = tritonclient.grpc.InferRequestedOutput("OUTPUT0")
        target.set_shared_memory(self._region, size, size)
        self._grpc.infer(model, [source], outputs=[target], client_timeout=LIMIT_S)

    def _over_rest(self, binary: bool) -> str:
        model, sent = self._pick()
        wanted = tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=binary)
        with _told():
            answer = self._http.infer(
                model, [_rest_input("INPUT0", sent, binary)], outputs=[wanted]
            )
        version = answer.get_response()["model_version"]
        _check(answer.as_numpy("OUTPUT0"), _expected(model, version, sent), f"{model}:{version}")
        return "right"

    def _pick(self) -> tuple[str, NDArray[np.float32]]:
        model = self._random.choice(MODELS)
        count = self._random.choice((1, 16, 256, 4096))
        return model, np.array([self._numbers(count)], np.float32)

    def _numbers(self, count: int) -> list[int]:
        first = self._random.randrange(100_000)
        return list(range(first, first + count))


def _expected(model: str, version: str, sent: NDArray[np.float32]) -> NDArray[np.float32]:
    if model == "echo":
        return sent
    return 2 * sent + np.float32(0 if model == "double" else version)


def _check(got: NDArray[Any] | None, expected: NDArray[Any], who: str) -> None:
    """Raises Wrong."""
    if got is None or got.shape != expected.shape or not np.array_equal(got, expected):
        said = "nothing" if got is None else f"{got.shape} {got.ravel()[:4]}"
        raise Wrong(f"{who}: {said} instead of {expected.shape} {expected.ravel()[:4]}")


def _rest_input(name: str, values: NDArray[Any], binary: bool) -> tritonclient.http.InferInput:
    kind = "INT32" if values.dtype == np.int32 else "FP32"
    tensor = tritonclient.http.InferInput(name, list(values.shape), kind)
    tensor.set_data_from_numpy(values, binary_data=binary)
    return tensor


def _grpc_input(values: NDArray[np.float32]) -> tritonclient.grpc.InferInput:
    tensor = tritonclient.grpc.InferInput("INPUT0", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return tensor


def _keep(parts: "Queue[Any]", result: Any, error: Any) -> None:
    parts.put(error if error is not None else result)


def _next(parts: "Queue[Any]") -> Any:
    """Raises what the stream ended with, Hung."""
    try:
        part = parts.get(timeout=LIMIT_S)
    except Empty:
        raise Hung("no further response of the stream") from None
    if isinstance(part, Exception):
        raise part
    return part


@contextmanager
def _told() -> Iterator[None]:
    """The clients' errors, as what became of the request."""
    try:
        yield
    except InferenceServerException as error:
        status, message = str(error.status()), str(error.message())
        if "DEADLINE" in status or "imeout" in message or "timed out" in message:
            raise Hung(message) from error
        if any(it in message for it in _CUT) or not message:
            raise Lost(f"{status} {message}") from error
        raise Refused(f"{status} {message}") from error
    except TimeoutError as error:
        raise Hung(repr(error)) from error
    except (OSError, grpc.RpcError) as error:
        raise Lost(repr(error)) from error


_CUT = ("onnection reset", "failed to connect", "ocket closed", "Broken pipe", "onnection refused",
        "RST_STREAM", "GOAWAY", "EOF")  # fmt: skip
