"""CUDA shared memory: a stand-in for the driver everywhere, the driver where there is a GPU.

The stand-in (tests/support/cuda_stand_in.c) is a real library with the driver's functions, loaded
by the real code; what it cannot show is that the driver's own functions do what is expected of
them. The tests marked `gpu` do that.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from server.errors import InvalidRequest, RegionExists, RequestTooLarge, UnknownRegion, Unsupported
from server.shared_memory import cuda
from server.shared_memory.cuda import Cuda, CudaFailed
from server.shared_memory.cuda_region import CudaRegion
from server.shared_memory.regions import MAX_REGIONS, SharedMemory
from server.shared_memory.system import SystemRegion
from support.cuda import COMPILER, DEVICES, build_driver, handle_of
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


@pytest.fixture(params=PROTOCOLS)
def module(request: pytest.FixtureRequest) -> Any:
    return PROTOCOLS[request.param]
