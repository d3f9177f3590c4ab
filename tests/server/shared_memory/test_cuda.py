"""CUDA shared memory: a stand-in for the driver everywhere, the driver where there is a GPU.

The stand-in (tests/support/cuda_stand_in.c) is a real library with the driver's functions, loaded
by the real code; what it cannot show is that the driver's own functions do what is expected of
them. The tests marked `gpu` do that.
"""

import asyncio
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

from server.errors import InvalidRequest, RegionExists, RequestTooLarge, UnknownRegion, Unsupported
from server.shared_memory import cuda
from server.shared_memory.cuda import Cuda, CudaFailed
from server.shared_memory.cuda_region import CudaRegion
from server.shared_memory.regions import MAX_REGIONS, SharedMemory
from server.shared_memory.system import SystemRegion
from support.cuda import COMPILER, DEVICES, build_driver, handle_of
from support.server import Server, running, write_identity
from support.shared_memory import bytes_of, memory

PROTOCOLS = {"http": http_client, "gRPC": grpc_client}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("the stand-in needs a C compiler")
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def shared(library: Path) -> SharedMemory:
    return SharedMemory(True, 1 << 20, Cuda(str(library)))


def register(shared: SharedMemory, name: str, key: str, size: int, device: int = 0) -> None:
    asyncio.run(shared.register_cuda(name, handle_of(key), device, size))


def is_mapped(key: str) -> bool:
    return key in Path("/proc/self/maps").read_text()


# the table, with the stand-in


def test_a_machine_without_a_driver_refuses_with_the_reason() -> None:
    missing = cuda.find("libno-such-driver.so.1")
    assert isinstance(missing, CudaFailed)
    shared = SharedMemory(True, 1 << 20, missing)
    assert not shared.offers_cuda
    with pytest.raises(Unsupported) as refusal:
        register(shared, "gpu", "/k", 4)
    assert str(refusal.value) == (
        "failed to register CUDA shared memory region: 'gpu', the CUDA driver cannot be loaded: "
        "libno-such-driver.so.1: cannot open shared object file: No such file or directory; "
        "register system shared memory instead"
    )
    assert shared.regions(CudaRegion) == []


def test_a_library_that_is_no_driver_is_a_reason_too() -> None:
    found = cuda.find("libc.so.6")
    assert isinstance(found, CudaFailed)
    assert "undefined symbol: cuInit" in str(found)


def test_what_is_not_allowed_is_refused_before_the_driver_is_asked(library: Path) -> None:
    off = SharedMemory(False, 1 << 20, Cuda(str(library)))
    assert not off.offers_cuda
    with pytest.raises(Unsupported, match="Client shared memory is disabled"):
        register(off, "gpu", "/k", 4)


def test_a_place_reads_and_writes_device_memory(shared: SharedMemory) -> None:
    with memory(16, b"0123456789abcdef") as key:
        register(shared, "r", key, 12)
        place = shared.place("X", "r", 2, 4)
        assert bytes(place.read()) == b"2345"
        place.write(b"WXYZ")
        assert bytes(shared.place("X", "r", 12, 0).read()) == b""
        shared.place("X", "r", 12, 0).write(b"")
        assert bytes_of(key) == b"01WXYZ6789abcdef"


def test_what_was_read_is_a_copy(shared: SharedMemory) -> None:
    with memory(4, b"then") as key:
        register(shared, "r", key, 4)
        place = shared.place("X", "r", 0, 4)
        found = place.read()
        place.write(b"now!")
        assert bytes(found) == b"then"


@pytest.mark.parametrize(
    ("offset", "size", "text"),
    [
        (9, 0, "Invalid offset for shared memory region: 'r'"),
        (2**64, 1, "Invalid offset for shared memory region: 'r'"),
        (0, 9, "Invalid offset + byte size for shared memory region: 'r'"),
        (1, 2**64 - 1, "Invalid offset + byte size for shared memory region: 'r'"),
    ],
)
def test_a_tensor_outside_its_region_is_refused(
    shared: SharedMemory, offset: int, size: int, text: str
) -> None:
    with memory(64) as key:
        register(shared, "r", key, 8)
        with pytest.raises(InvalidRequest) as refusal:
            shared.place("X", "r", offset, size)
    assert str(refusal.value).startswith(text)


BAD_REGIONS = {
    "larger than the allocation": (65, 0, "byte_size 65 does not lie within the 64 bytes"),
    "empty": (0, 0, "byte_size must be at least 1, got 0"),
    "larger than anything": (2**64 - 1, 0, "does not lie within the 64 bytes"),
    "no such device": (64, DEVICES, f"there is no device_id {DEVICES}, this server has {DEVICES}"),
    "a device below zero": (64, -1, "there is no device_id -1"),
}


@pytest.mark.parametrize("case", BAD_REGIONS)
def test_a_region_that_cannot_be_is_refused_and_stays_unmapped(
    shared: SharedMemory, case: str
) -> None:
    size, device, reason = BAD_REGIONS[case]
    with memory(64) as key:
        with pytest.raises(InvalidRequest) as refusal:
            register(shared, "r", key, size, device)
        assert str(refusal.value).startswith("failed to register shared memory region 'r': invalid")
        assert reason in str(refusal.value)
        assert not is_mapped(key)
    assert shared.regions(CudaRegion) == []


def test_a_handle_that_is_none_is_refused(shared: SharedMemory) -> None:
    with pytest.raises(InvalidRequest, match="a cudaIpcMemHandle_t has 64 bytes, got 3"):
        asyncio.run(shared.register_cuda("r", b"abc", 0, 4))
    with pytest.raises(InvalidRequest, match="cuIpcOpenMemHandle_v2: invalid argument"):
        asyncio.run(shared.register_cuda("r", b"\xff" * 64, 0, 4))


def test_one_table_holds_both_kinds_and_keeps_them_apart(shared: SharedMemory) -> None:
    with memory(8) as key:
        register(shared, "gpu", key, 8)
        shared.register("host", key, 0, 8)
        with pytest.raises(RegionExists, match="'gpu' already in manager"):
            shared.register("gpu", key, 0, 8)
        with pytest.raises(RegionExists, match="'host' already in manager"):
            register(shared, "host", key, 8)
        assert [region.name for region in shared.regions(CudaRegion)] == ["gpu"]
        assert [region.name for region in shared.regions(SystemRegion)] == ["host"]
        with pytest.raises(UnknownRegion, match="registered as system shared memory, not CUDA"):
            shared.regions(CudaRegion, "host")
        with pytest.raises(UnknownRegion, match="registered as CUDA shared memory, not system"):
            shared.regions(SystemRegion, "gpu")
        shared.unregister(SystemRegion, "gpu")
        shared.unregister(SystemRegion)
        assert [region.name for region in shared.regions(CudaRegion)] == ["gpu"]
        shared.unregister(CudaRegion)
        assert shared.regions(CudaRegion) == []


def test_two_registrations_of_a_name_at_once_leave_one(shared: SharedMemory) -> None:
    async def both(key: str) -> list[Any]:
        once = shared.register_cuda("r", handle_of(key), 0, 4)
        again = shared.register_cuda("r", handle_of(key), 0, 4)
        return await asyncio.gather(once, again, return_exceptions=True)

    with memory(4) as key:
        outcomes = asyncio.run(both(key))
        assert outcomes[0] is None
        assert isinstance(outcomes[1], RegionExists)
        shared.unregister(CudaRegion)
        assert not is_mapped(key)


def test_regions_are_bounded_in_number_whatever_their_kind(shared: SharedMemory) -> None:
    with memory(8) as key:
        for number in range(MAX_REGIONS - 1):
            shared.register(f"r{number}", key, 0, 8)
        register(shared, "the last", key, 8)
        with pytest.raises(RequestTooLarge, match="1024 regions are registered already"):
            register(shared, "one more", key, 8)
        shared.unregister(SystemRegion)
        shared.unregister(CudaRegion)


def test_a_region_in_use_is_unmapped_when_its_last_place_is_gone(shared: SharedMemory) -> None:
    with memory(4) as key:
        register(shared, "r", key, 4)
        place = shared.place("X", "r", 0, 4)
        shared.unregister(CudaRegion, "r")
        assert [region.name for region in shared.regions(CudaRegion)] == ["r"]
        place.write(b"late")
        assert is_mapped(key)
        del place
        assert shared.regions(CudaRegion) == []
        assert not is_mapped(key)
        assert bytes_of(key) == b"late"


def test_one_allocation_under_two_names_is_mapped_until_both_are_gone(shared: SharedMemory) -> None:
    with memory(4, b"same") as key:
        register(shared, "one", key, 4)
        register(shared, "other", key, 4)
        shared.unregister(CudaRegion, "one")
        assert bytes(shared.place("X", "other", 0, 4).read()) == b"same"
        shared.unregister(CudaRegion, "other")
        assert not is_mapped(key)


def test_what_the_driver_refuses_later_is_an_error_that_names_the_region(library: Path) -> None:
    driver = Cuda(str(library))
    with memory(4) as key:
        region = CudaRegion(driver, "r", handle_of(key), 0, 4)
        for use in (lambda: region.read(5, 4), lambda: region.write(5, b"1234")):
            with pytest.raises(InvalidRequest, match="region 'r' cannot be used: cuMemcpy"):
                use()


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
