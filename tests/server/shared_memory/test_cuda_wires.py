"""Device memory over REST and gRPC, with the stand-in for the driver and with a driver."""

import base64
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from support.cuda import COMPILER, build_driver, handle_of
from support.server import Server, running, write_identity
from support.shared_memory import bytes_of, memory

PROTOCOLS = {"http": http_client, "gRPC": grpc_client}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("the stand-in needs a C compiler")
    return build_driver(tmp_path_factory.mktemp("driver"))


# a server, with the stand-in


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    found_first = {"LD_LIBRARY_PATH": str(library.parent)}
    with running(repository, allow_client_shm=True, environment=found_first) as started:
        yield started


@pytest.fixture(params=PROTOCOLS)
def module(request: pytest.FixtureRequest) -> Any:
    return PROTOCOLS[request.param]


@pytest.fixture
def client(server: Server, module: Any) -> Iterator[Any]:
    address = server.http if module is http_client else server.grpc
    with module.InferenceServerClient(address) as opened:
        yield opened
        opened.unregister_cuda_shared_memory()
        opened.unregister_system_shared_memory()


def register_with(client: Any, name: str, key: str, size: int, device: int = 0) -> None:
    handle = base64.b64encode(handle_of(key))
    if isinstance(client, http_client.InferenceServerClient):
        client.register_cuda_shared_memory(name, handle.decode(), device, size)
    else:
        client.register_cuda_shared_memory(name, handle, device, size)


def asked(module: Any, size: int) -> dict[str, Any]:
    tensor = module.InferInput("INPUT0", [1, size // 4], "FP32")
    tensor.set_shared_memory("in", size)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("out", size)
    return {"model_name": "echo", "inputs": [tensor], "outputs": [output]}


def rows_of(client: Any, name: str = "") -> dict[str, tuple[int, int]]:
    status = client.get_cuda_shared_memory_status(name)
    if isinstance(client, http_client.InferenceServerClient):
        return {row["name"]: (row["device_id"], row["byte_size"]) for row in status}
    return {name: (row.device_id, row.byte_size) for name, row in status.regions.items()}


def test_tensors_cross_device_memory_on_both_protocols(client: Any, module: Any) -> None:
    sent = np.arange(16, dtype=np.float32).tobytes()
    with memory(64, sent) as key_in, memory(64) as key_out:
        register_with(client, "in", key_in, 64)
        register_with(client, "out", key_out, 64, device=1)
        assert rows_of(client) == {"in": (0, 64), "out": (1, 64)}
        assert rows_of(client, "out") == {"out": (1, 64)}
        client.infer(**asked(module, 64))
        assert bytes_of(key_out) == sent
        client.unregister_cuda_shared_memory("in")
        assert rows_of(client) == {"out": (1, 64)}


def test_an_input_of_the_host_may_have_its_output_on_a_device(client: Any, module: Any) -> None:
    sent = np.arange(4, dtype=np.float32).tobytes()
    with memory(16, sent) as key_in, memory(16) as key_out:
        client.register_system_shared_memory("in", key_in, 16)
        register_with(client, "out", key_out, 16)
        client.infer(**asked(module, 16))
        assert bytes_of(key_out) == sent


def test_bad_registrations_are_refused_on_both_protocols(client: Any, module: Any) -> None:
    with memory(16) as key:
        with pytest.raises(InferenceServerException, match="does not lie within the 16 bytes"):
            register_with(client, "in", key, 17)
        with pytest.raises(InferenceServerException, match="there is no device_id 7"):
            register_with(client, "in", key, 16, device=7)
        short = "AAAA" if module is http_client else b"AAAA"
        with pytest.raises(InferenceServerException, match="has 64 bytes, got 3"):
            client.register_cuda_shared_memory("in", short, 0, 16)
        with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory"):
            client.get_cuda_shared_memory_status("in")
        register_with(client, "in", key, 16)
        with pytest.raises(InferenceServerException, match="'in' already in manager"):
            register_with(client, "in", key, 16)


BAD_BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "no handle": ({}, "Shared memory register request has no 'raw_handle' field"),
    "a handle of another type": (
        {"raw_handle": "AAAA"},
        "Unable to parse 'b64': attempt to access JSON non-string as string",
    ),
    "no base64": (
        {"raw_handle": {"b64": "?"}},
        "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
    ),
    "not ASCII": (
        {"raw_handle": {"b64": "ž"}},
        "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
    ),
    "no device": (
        {"raw_handle": {"b64": "AAAA"}},
        "Shared memory register request has no 'device_id' field",
    ),
    "a device below zero": (
        {"raw_handle": {"b64": "AAAA"}, "device_id": -1},
        "Unable to parse 'device_id': attempt to access JSON non-unsigned-integer as "
        "unsigned-integer",
    ),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_is_refused_in_words(server: Server, case: str) -> None:
    body, text = BAD_BODIES[case]
    status, answer = server.post("/v2/cudasharedmemory/region/r/register", body)
    assert (status, answer.decode()) == (400, f'{{"error":"{text}"}}')


def test_an_output_too_large_for_its_region_is_refused_and_the_server_lives(
    client: Any, module: Any
) -> None:
    with memory(16) as key_in, memory(12) as key_out:
        register_with(client, "in", key_in, 16)
        register_with(client, "out", key_out, 12)
        call = asked(module, 16)
        call["outputs"][0].set_shared_memory("out", 12)
        with pytest.raises(InferenceServerException, match="should be at least 16 bytes"):
            client.infer(**call)
        assert client.is_server_live()


def test_a_stream_uses_device_memory_too(server: Server) -> None:
    sent = np.arange(4, dtype=np.float32).tobytes()
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with memory(16, sent) as key_in, memory(16) as key_out:
        with grpc_client.InferenceServerClient(server.grpc) as client:
            register_with(client, "in", key_in, 16)
            register_with(client, "out", key_out, 16)
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(**asked(grpc_client, 16))
            _, error = answers.get(timeout=60)
            client.stop_stream()
            client.unregister_cuda_shared_memory()
        assert error is None
        assert bytes_of(key_out) == sent


# a server, with the driver


@pytest.mark.gpu
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_clients_own_utilities_work_with_a_gpu(tmp_path: Path, protocol: str) -> None:
    gpu = pytest.importorskip("tritonclient.utils.cuda_shared_memory", exc_type=RuntimeError)
    module = PROTOCOLS[protocol]
    write_identity(tmp_path, "echo")
    sent = np.arange(1 << 20, dtype=np.float32).reshape(1, -1)
    memories = [gpu.create_shared_memory_region(name, sent.nbytes, 0) for name in ("in", "out")]
    gpu.set_shared_memory_region(memories[0], [sent])
    with running(tmp_path, allow_client_shm=True) as server:
        address = server.http if module is http_client else server.grpc
        with module.InferenceServerClient(address) as client:
            for name, one in zip(("in", "out"), memories, strict=True):
                handle = gpu.get_raw_handle(one)
                client.register_cuda_shared_memory(name, handle.decode(), 0, sent.nbytes)
            assert rows_of(client) == {"in": (0, sent.nbytes), "out": (0, sent.nbytes)}
            client.infer(**asked(module, sent.nbytes))
            found = gpu.get_contents_as_numpy(memories[1], np.float32, list(sent.shape))
            assert (found == sent).all()
            handle = gpu.get_raw_handle(memories[0])
            with pytest.raises(InferenceServerException, match="does not lie within"):
                client.register_cuda_shared_memory("far", handle.decode(), 0, 1 << 40)
            client.unregister_cuda_shared_memory()
            assert not rows_of(client)
    for one in memories:
        gpu.destroy_shared_memory_region(one)


def test_the_extension_is_announced_where_devices_can_be_registered(
    server: Server, tmp_path: Path
) -> None:
    def extensions(started: Server) -> list[str]:
        found: list[str] = json.loads(started.get("/v2")[1])["extensions"]
        return found

    place = extensions(server).index("system_shared_memory")
    assert extensions(server)[place + 1] == "cuda_shared_memory"
    write_identity(tmp_path, "echo")
    with running(tmp_path) as without:
        assert "cuda_shared_memory" not in extensions(without)
