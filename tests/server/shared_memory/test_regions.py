"""The table of shared memory regions: what may be registered, read and written."""

import os

import pytest
from tritonclient.grpc import service_pb2 as pb

from server.codec.shared_memory_parameters import place_in_json, place_in_message
from server.errors import (
    InvalidRequest,
    RegionExists,
    RequestTooLarge,
    ServingError,
    UnknownRegion,
    Unsupported,
)
from server.shared_memory.regions import MAX_REGIONS, SharedMemory
from server.shared_memory.system import SystemRegion
from support.shared_memory import FOLDER, bytes_of, memory

DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)


@pytest.fixture
def shared():
    return SharedMemory(True, 1 << 20)


def test_where_it_is_not_allowed_everything_is_refused_but_the_status_of_none():
    off = SharedMemory(False, 1 << 20)
    for call in (
        lambda: off.register("r", "/k", 0, 1),
        lambda: off.unregister(SystemRegion),
        lambda: off.place("X", "r", 0, 1),
        lambda: off.check_cuda("r"),
    ):
        with pytest.raises(Unsupported) as refusal:
            call()
        assert str(refusal.value) == DISABLED
    assert list(off.regions(SystemRegion)) == []
    with pytest.raises(UnknownRegion, match="Unable to find system shared memory region: 'r'"):
        off.regions(SystemRegion, "r")


def test_a_place_reads_and_writes_its_bytes_of_the_region(shared):
    with memory(16, b"0123456789abcdef") as key:
        shared.register("r", key, 4, 8)
        place = shared.place("X", "r", 2, 4)
        assert bytes(place.read()) == b"6789"
        place.write(b"WXYZ")
        assert bytes_of(key) == b"012345WXYZabcdef"


def test_a_key_with_and_without_its_slash_is_the_same_object(shared):
    with memory(4) as key:
        shared.register("with", key, 0, 4)
        shared.register("without", key[1:], 0, 4)
        shared.place("X", "with", 0, 4).write(b"same")
        assert bytes(shared.place("X", "without", 0, 4).read()) == b"same"


HOSTILE_KEYS = {
    "traversal": ("/../etc/passwd", "a key is one name"),
    "traversal without a slash": ("../../etc/passwd", "a key is one name"),
    "sub-folder": ("/a/b", "a key is one name"),
    "two slashes": ("//a", "a key is one name"),
    "the folder": (".", "a key is one name"),
    "its parent": ("/..", "a key is one name"),
    "nothing": ("", "a key is one name"),
    "a NUL": ("/a\0b", "a key is one name"),
    "half a character": ("/\ud800", "a key is one name"),
    "too long": ("/" + "k" * 256, "a key is one name"),
    "nobody made it": ("/no-such-key", "No such file or directory"),
    "ours": ("/modelyard_x", "reserved prefix 'modelyard_'"),
    "a backend's": (
        "/triton_python_backend_shm_region_1",
        "reserved prefix 'triton_python_backend_shm_region_'",
    ),
    "a semaphore": ("sem.lock", "reserved prefix 'sem.'"),
}


@pytest.mark.parametrize("case", HOSTILE_KEYS)
def test_a_key_that_is_not_a_clients_object_is_refused(shared, case):
    key, reason = HOSTILE_KEYS[case]
    with pytest.raises(InvalidRequest) as refusal:
        shared.register("r", key, 0, 1)
    assert reason in str(refusal.value)
    assert shared.regions(SystemRegion) == []


def test_a_link_out_of_the_folder_is_not_followed(shared, tmp_path):
    target = tmp_path / "secret"
    target.write_bytes(b"secret")
    link = FOLDER / f"test-shm-link-{os.getpid()}"
    link.symlink_to(target)
    try:
        with pytest.raises(InvalidRequest, match="Unable to open shared memory region"):
            shared.register("r", link.name, 0, 6)
    finally:
        link.unlink()


def test_a_folder_and_a_pipe_are_no_shared_memory(shared):
    folder, pipe = (FOLDER / f"test-shm-{kind}-{os.getpid()}" for kind in ("folder", "pipe"))
    folder.mkdir()
    os.mkfifo(pipe)
    try:
        for path in (folder, pipe):
            with pytest.raises(InvalidRequest, match="Unable to open shared memory region"):
                shared.register("r", path.name, 0, 1)
    finally:
        folder.rmdir()
        pipe.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_another_users_object_is_taken_only_if_it_is_open_to_everybody(shared):
    with memory(8, mode=0o600) as private, memory(8, mode=0o666) as public:
        for key in (private, public):
            os.chown(FOLDER / key[1:], 12345, 12345)
        with pytest.raises(InvalidRequest, match="belongs to another user"):
            shared.register("private", private, 0, 8)
        shared.register("public", public, 0, 8)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 65), (64, 1), (2**64 - 1, 2), (1, 2**64 - 1), (0, 0), (-1, 4)]
)
def test_a_region_outside_its_object_is_refused(shared, offset, size):
    with memory(64) as key, pytest.raises(InvalidRequest, match="failed to register shared memory"):
        shared.register("r", key, offset, size)


@pytest.mark.parametrize(
    ("offset", "size", "text"),
    [
        (65, 0, "Invalid offset for shared memory region: 'r'"),
        (-1, 4, "Invalid offset for shared memory region: 'r'"),
        (2**64, 1, "Invalid offset for shared memory region: 'r'"),
        (0, 65, "Invalid offset + byte size for shared memory region: 'r'"),
        (60, 5, "Invalid offset + byte size for shared memory region: 'r'"),
        (1, 2**64 - 1, "Invalid offset + byte size for shared memory region: 'r'"),
        (0, -1, "Invalid offset + byte size for shared memory region: 'r'"),
    ],
)
def test_a_tensor_outside_its_region_is_refused(shared, offset, size, text):
    with memory(128) as key:
        shared.register("r", key, 0, 64)
        with pytest.raises(InvalidRequest) as refusal:
            shared.place("X", "r", offset, size)
    assert str(refusal.value).startswith(text)


def test_a_name_is_taken_once_and_an_unknown_one_is_not_found(shared):
    with memory(8) as key:
        shared.register("r", key, 0, 8)
        with pytest.raises(RegionExists, match="shared memory region 'r' already in manager"):
            shared.register("r", key, 0, 8)
    with pytest.raises(UnknownRegion, match="Unable to find shared memory region: 'no'"):
        shared.place("X", "no", 0, 1)
    with pytest.raises(UnknownRegion, match="Unable to find system shared memory region: 'no'"):
        shared.regions(SystemRegion, "no")
    shared.unregister(SystemRegion, "no")


def test_a_tensor_over_the_limit_is_refused_naming_the_flag():
    shared = SharedMemory(True, 10)
    with memory(64) as key:
        shared.register("r", key, 0, 64)
        assert len(shared.place("X", "r", 0, 10).read()) == 10
        with pytest.raises(RequestTooLarge, match="--client-shm-max-tensor-size"):
            shared.place("X", "r", 0, 11)


def test_regions_are_bounded_in_number_and_give_their_descriptors_back(shared):
    before = len(os.listdir("/proc/self/fd"))
    with memory(8) as key:
        for number in range(MAX_REGIONS):
            shared.register(f"r{number}", key, 0, 8)
        with pytest.raises(RequestTooLarge, match="1024 regions are registered already"):
            shared.register("one more", key, 0, 8)
        shared.unregister(SystemRegion)
        assert shared.regions(SystemRegion) == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_an_object_truncated_after_registration_is_an_error_and_no_signal(shared):
    with memory(4096) as key:
        shared.register("r", key, 0, 4096)
        place = shared.place("X", "r", 0, 4096)
        os.truncate(FOLDER / key[1:], 100)
        for use in (place.read, lambda: place.write(b"x" * 4096)):
            with pytest.raises(InvalidRequest, match="'r' has been truncated since") as refusal:
                use()
            assert "has 100 bytes, the region needs 4096" in str(refusal.value)
        assert len(bytes_of(key)) == 100


def test_an_object_unlinked_after_registration_can_still_be_used(shared):
    with memory(4) as key:
        shared.register("r", key, 0, 4)
    place = shared.place("X", "r", 0, 4)
    place.write(b"kept")
    assert bytes(place.read()) == b"kept"


def test_a_region_in_use_is_unregistered_when_its_last_place_is_gone(shared):
    with memory(4) as key:
        shared.register("r", key, 0, 4)
        place = shared.place("X", "r", 0, 4)
        shared.unregister(SystemRegion, "r")
        assert [region.name for region in shared.regions(SystemRegion)] == ["r"]
        with pytest.raises(RegionExists):
            shared.register("r", key, 0, 4)
        place.write(b"late")
        del place
        assert shared.regions(SystemRegion) == []
        assert bytes_of(key) == b"late"
        shared.register("r", key, 0, 4)


def parameters(**given):
    return {key: pb.InferParameter(**{kind: value}) for key, (kind, value) in given.items()}


BAD_PARAMETERS = {
    "region of another type": (
        {"shared_memory_region": ("int64_param", 1), "shared_memory_byte_size": ("int64_param", 4)},
        "invalid value type for 'shared_memory_region' parameter for tensor 'X', expected "
        "string_param.",
    ),
    "size of another type": (
        {
            "shared_memory_region": ("string_param", "r"),
            "shared_memory_byte_size": ("uint64_param", 4),
        },
        "invalid value type for 'shared_memory_byte_size' parameter for tensor 'X', expected "
        "int64_param.",
    ),
    "no size": (
        {"shared_memory_region": ("string_param", "r")},
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor 'X'",
    ),
    "no region": (
        {"shared_memory_offset": ("int64_param", 4)},
        "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for "
        "tensor 'X'",
    ),
    "classes as well": (
        {
            "shared_memory_region": ("string_param", "r"),
            "shared_memory_byte_size": ("int64_param", 4),
            "classification": ("int64_param", 1),
        },
        "output can't set both 'shared_memory_region' and 'classification'",
    ),
    "negative offset": (
        {
            "shared_memory_region": ("string_param", "r"),
            "shared_memory_byte_size": ("int64_param", 4),
            "shared_memory_offset": ("int64_param", -1),
        },
        "Invalid offset for shared memory region: 'r' (got -1 for 'X', the region has 8 bytes)",
    ),
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
def test_parameters_that_name_no_place_are_refused(shared, case):
    given, text = BAD_PARAMETERS[case]
    with memory(8) as key:
        shared.register("r", key, 0, 8)
        with pytest.raises(InvalidRequest) as refusal:
            place_in_message(shared, "X", parameters(**given))
    assert str(refusal.value) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shared_memory_region": 7, "shared_memory_byte_size": 4}, "JSON non-string as string"),
        ({"shared_memory_region": "r", "shared_memory_byte_size": "4"}, "non-unsigned-integer"),
        ({"shared_memory_region": "r", "shared_memory_byte_size": -4}, "non-unsigned-integer"),
        ({"shared_memory_region": "r", "shared_memory_byte_size": True}, "non-unsigned-integer"),
        ({"shared_memory_region": "r"}, "'shared_memory_byte_size' must be specified"),
        ({"shared_memory_byte_size": 4}, "can not be specified without 'shared_memory_region'"),
    ],
)
def test_json_parameters_that_name_no_place_are_refused(shared, given, text):
    with pytest.raises(ServingError) as refusal:
        place_in_json(shared, "X", given)
    assert text in str(refusal.value)
