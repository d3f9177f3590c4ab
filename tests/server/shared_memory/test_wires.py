"""Tensors in shared memory of clients, through a real server."""

import asyncio
import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio_client
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio_client
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from repository.config.tensors import BY_NAME, DATA_TYPES
from support.server import running, write_identity
from support.shared_memory import FOLDER, bytes_of, memory


class Http:
    """The HTTP client's part in what the tests below do with both protocols."""

    module = http_client

    @staticmethod
    def regions(client):
        return {row["name"]: row for row in client.get_system_shared_memory_status()}

    @staticmethod
    def cuda_regions(client):
        return client.get_cuda_shared_memory_status()

    @staticmethod
    def carries_data(result):
        return "data" in result.get_output("OUTPUT0")


class Grpc:
    """The gRPC client's part."""

    module = grpc_client

    @staticmethod
    def regions(client):
        return dict(client.get_system_shared_memory_status().regions)

    @staticmethod
    def cuda_regions(client):
        return client.get_cuda_shared_memory_status().regions

    @staticmethod
    def carries_data(result):
        return any(result.get_response().raw_output_contents)


PROTOCOLS = {"http": Http, "gRPC": Grpc}


def config(name, datatype, dims="-1", delay_ms=0):
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    delay = (
        "instance_group { kind: KIND_CPU count: 1 }"
        f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}'
        if delay_ms
        else ""
    )
    return (
        f'name: "{name}"\nbackend: "identity"\n'
        f'input {{ name: "INPUT0" data_type: {kind} dims: {dims} }}\n'
        f'output {{ name: "OUTPUT0" data_type: {kind} dims: {dims} }}\n{delay}'
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for row in DATA_TYPES:
        name = row.name.lower()
        write_identity(repository, name, config=config(name, row.name))
    write_identity(repository, "slow", config=config("slow", "FP32", delay_ms=1500))
    with running(repository, allow_client_shm=True) as started:
        yield started


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return PROTOCOLS[request.param]


@pytest.fixture
def client(server, protocol):
    address = server.http if protocol is Http else server.grpc
    with protocol.module.InferenceServerClient(address) as opened:
        yield opened
        opened.unregister_system_shared_memory()


def asked(protocol, name, datatype, shape, input_size, output_size, offsets=(0, 0)):
    """Input and requested output of model `name`, in the regions "in" and "out"."""
    tensor = protocol.module.InferInput("INPUT0", shape, datatype)
    tensor.set_shared_memory("in", input_size, offsets[0])
    output = protocol.module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("out", output_size, offsets[1])
    return {"model_name": name, "inputs": [tensor], "outputs": [output]}


def registered(client, key_in, key_out, size_in, size_out):
    client.register_system_shared_memory("in", key_in, size_in)
    client.register_system_shared_memory("out", key_out, size_out)


def values_of(datatype):
    """Octets of a tensor of seven elements, the odd ones of the type among them."""
    if datatype == "BYTES":
        texts = [b"", b"\0\xff", "žluťoučký 🐎".encode(), b"a" * 300, b"{}", b"\n", b"7"]
        return serialize_byte_tensor(np.array(texts, dtype=object)).item()
    dtype = BY_NAME[datatype].dtype
    if dtype == np.bool_:
        return np.array([1, 0, 0, 1, 1, 0, 1], dtype).tobytes()
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = [0, 1, limits.max, limits.min, 2, limits.max - 1, limits.min + 1]
        return np.array(values, dtype).tobytes()
    limits = ml_dtypes.finfo(dtype)
    values = [0.0, -0.0, np.nan, np.inf, -np.inf, float(limits.max), float(limits.tiny)]
    return np.array(values, dtype).tobytes()


@pytest.mark.parametrize("datatype", [row.name for row in DATA_TYPES])
def test_every_data_type_crosses_shared_memory_bit_exactly(client, protocol, datatype):
    octets = values_of(datatype)
    size = len(octets)
    with memory(size, octets) as key_in, memory(size + 3) as key_out:
        registered(client, key_in, key_out, size, size + 3)
        result = client.infer(**asked(protocol, datatype.lower(), datatype, [7], size, size + 3))
        assert bytes_of(key_out) == octets + b"\0\0\0"
    assert not protocol.carries_data(result)


def test_zero_length_tensors_cross_as_well(client, protocol):
    with memory(4) as key_in, memory(4, b"left") as key_out:
        registered(client, key_in, key_out, 4, 4)
        client.infer(**asked(protocol, "fp32", "FP32", [0], 0, 0))
        client.infer(**asked(protocol, "bytes", "BYTES", [0], 0, 4))
        assert bytes_of(key_out) == b"left"


def test_the_clients_own_utilities_work_end_to_end(client, protocol):
    sent = np.arange(16, dtype=np.float32)
    one = shm.create_shared_memory_region("data", f"/test-shm-tool-{os.getpid()}", 128)
    try:
        shm.set_shared_memory_region(one, [sent], offset=64)
        client.register_system_shared_memory("in", one._shm_key, 64, offset=64)
        client.register_system_shared_memory("out", one._shm_key, 64)
        assert set(protocol.regions(client)) == {"in", "out"}
        client.infer(**asked(protocol, "fp32", "FP32", [16], 64, 64))
        assert (shm.get_contents_as_numpy(one, np.float32, [16]) == sent).all()
        client.unregister_system_shared_memory("in")
        assert set(protocol.regions(client)) == {"out"}
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(one)


def test_offsets_into_a_region_are_honoured(client, protocol):
    sent = np.arange(4, dtype=np.float32).tobytes()
    with memory(64, b"\0" * 8 + sent) as key:
        client.register_system_shared_memory("in", key, 64)
        client.register_system_shared_memory("out", key, 64)
        client.infer(**asked(protocol, "fp32", "FP32", [4], 16, 16, (8, 40)))
        assert bytes_of(key)[40:56] == sent


REFUSALS = {
    "unknown region": (
        {"region": "nobody"},
        "Unable to find shared memory region: 'nobody'",
    ),
    "input outside": (
        {"size": 68},
        "Invalid offset + byte size for shared memory region: 'in' "
        "(got 0 + 68 for 'INPUT0', the region has 64 bytes)",
    ),
    "wrong size": (
        {"size": 60},
        "input byte size mismatch for input 'INPUT0' for model 'fp32'. Expected 64, got 60",
    ),
    "output too small": (
        {"output_size": 32},
        "shared memory size specified with the request for output 'OUTPUT0' (32 bytes) should be "
        "at least 64 bytes to hold the results",
    ),
    "output offset outside": (
        {"output_offset": 65},
        "Invalid offset for shared memory region: 'out' "
        "(got 65 for 'OUTPUT0', the region has 64 bytes)",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_bad_place_is_refused_and_the_next_request_is_served(client, protocol, case):
    changes, text = REFUSALS[case]
    given = {"region": "in", "size": 64, "output_size": 64, "output_offset": 0, **changes}
    with memory(64) as key_in, memory(64) as key_out:
        registered(client, key_in, key_out, 64, 64)
        call = asked(protocol, "fp32", "FP32", [16], given["size"], 64)
        call["inputs"][0].set_shared_memory(given["region"], given["size"])
        call["outputs"][0].set_shared_memory("out", given["output_size"], given["output_offset"])
        with pytest.raises(InferenceServerException) as refusal:
            client.infer(**call)
        assert text in str(refusal.value)
        assert not refusal.value.status().startswith("5")
        assert client.infer(**asked(protocol, "fp32", "FP32", [16], 64, 64)) is not None


def test_hostile_texts_in_a_region_are_refused(client, protocol):
    with memory(64, (2**31).to_bytes(4, "little")) as key_in, memory(64) as key_out:
        registered(client, key_in, key_out, 64, 64)
        with pytest.raises(InferenceServerException, match="incomplete string data"):
            client.infer(**asked(protocol, "bytes", "BYTES", [1], 64, 64))


def test_memory_truncated_under_the_server_is_an_error_and_the_server_lives(client, protocol):
    with memory(4096) as key_in, memory(4096) as key_out:
        registered(client, key_in, key_out, 4096, 4096)
        call = asked(protocol, "fp32", "FP32", [1024], 4096, 4096)
        os.truncate(FOLDER / key_out[1:], 0)
        with pytest.raises(InferenceServerException, match="'out' has been truncated"):
            client.infer(**call)
        os.truncate(FOLDER / key_in[1:], 0)
        with pytest.raises(InferenceServerException, match="'in' has been truncated"):
            client.infer(**call)
        assert client.is_server_live()


def test_registration_errors_have_tritons_texts(client):
    with memory(64) as key:
        client.register_system_shared_memory("in", key, 64)
        with pytest.raises(InferenceServerException, match="'in' already in manager"):
            client.register_system_shared_memory("in", key, 64)
        with pytest.raises(InferenceServerException, match="'far': invalid args: offset 60"):
            client.register_system_shared_memory("far", key, 5, offset=60)
    with pytest.raises(InferenceServerException, match="reserved prefix"):
        client.register_system_shared_memory("x", "triton_python_backend_shm_region_0", 4)
    with pytest.raises(InferenceServerException, match="Unable to open shared memory region"):
        client.register_system_shared_memory("x", "/nobody-made-this", 4)
    with pytest.raises(InferenceServerException, match="Unable to find system shared memory"):
        client.get_system_shared_memory_status("nobody")


def test_cuda_shared_memory_is_refused_where_there_is_no_gpu(client, protocol):
    assert not protocol.cuda_regions(client)
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException) as refusal:
        client.register_cuda_shared_memory("gpu", b"AAAA", 0, 64)
    assert "'gpu', the CUDA driver can" in str(refusal.value)
    with pytest.raises(InferenceServerException, match="Unable to find cuda shared memory region"):
        client.get_cuda_shared_memory_status("gpu")


def wait_until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_unregistering_waits_for_the_request_that_still_writes(server, client, protocol):
    sent = np.arange(4, dtype=np.float32)
    placed = {"shared_memory_byte_size": 16}
    first = {"name": "INPUT0", "datatype": "FP32", "shape": [4], "data": sent.tolist()}
    second = {**first, "parameters": {"shared_memory_region": "in", **placed}}
    del second["data"]
    output = {"name": "OUTPUT0", "parameters": {"shared_memory_region": "out", **placed}}
    with memory(16, sent.tobytes()) as key_in, memory(16) as key_out, ThreadPoolExecutor() as pool:
        registered(client, key_in, key_out, 16, 16)
        post = partial(pool.submit, server.post, "/v2/models/slow/infer")
        answers = [post({"inputs": [first]}), post({"inputs": [second], "outputs": [output]})]
        wait_until(lambda: waiting_for_slow(server) == 1)
        client.unregister_system_shared_memory()
        assert set(protocol.regions(client)) == {"out"}
        assert [answer.result()[0] for answer in answers] == [200, 200]
        wait_until(lambda: not protocol.regions(client))
        assert bytes_of(key_out) == sent.tobytes()


def waiting_for_slow(server):
    """Requests that wait while another executes."""
    text = server.get("/metrics", server.metrics_port)[1].decode()
    line = next(
        line
        for line in text.splitlines()
        if line.startswith('nv_inference_pending_request_count{model="slow"')
    )
    return float(line.split()[-1])


# the asynchronous clients


def test_the_asynchronous_http_client_uses_it_too(server):
    asyncio.run(_round_trip(http_aio_client, http_client, server.http))


def test_the_asynchronous_grpc_client_uses_it_too(server):
    asyncio.run(_round_trip(grpc_aio_client, grpc_client, server.grpc))


async def _round_trip(module, parts, address):
    sent = np.arange(8, dtype=np.float32).tobytes()
    with memory(32, sent) as key_in, memory(32) as key_out:
        async with module.InferenceServerClient(address) as client:
            await client.register_system_shared_memory("in", key_in, 32)
            await client.register_system_shared_memory("out", key_out, 32)
            tensor = parts.InferInput("INPUT0", [8], "FP32")
            tensor.set_shared_memory("in", 32)
            output = parts.InferRequestedOutput("OUTPUT0")
            output.set_shared_memory("out", 32)
            await client.infer("fp32", [tensor], outputs=[output])
            assert bytes_of(key_out) == sent
            await client.unregister_system_shared_memory()
            status = await client.get_system_shared_memory_status()
            assert not getattr(status, "regions", status)


# what only gRPC can ask


def test_a_stream_of_requests_uses_it_too(server):
    sent = np.arange(4, dtype=np.float32).tobytes()
    answers = queue.SimpleQueue()
    with memory(16, sent) as key_in, memory(16) as key_out:
        with grpc_client.InferenceServerClient(server.grpc) as client:
            registered(client, key_in, key_out, 16, 16)
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(**asked(Grpc, "fp32", "FP32", [4], 16, 16))
            client.async_stream_infer(**asked(Grpc, "fp32", "FP32", [4], 16, 15))
            good, bad = answers.get(timeout=60), answers.get(timeout=60)
            client.stop_stream()
            client.unregister_system_shared_memory()
        assert good[1] is None
        assert not Grpc.carries_data(good[0])
        assert "'OUTPUT0' (15 bytes) should be at least 16 bytes" in str(bad[1])
        assert bytes_of(key_out) == sent


def test_the_same_message_over_and_over_writes_each_time(client, protocol):
    """A listener that knows a message again must not forget where its outputs go."""
    with memory(16) as key_out:
        client.register_system_shared_memory("out", key_out, 16)
        for number in range(4):
            sent = np.full(4, number, np.float32)
            call = asked(protocol, "fp32", "FP32", [4], 16, 16)
            call["inputs"][0].set_data_from_numpy(sent)
            assert not protocol.carries_data(client.infer(**call))
            assert bytes_of(key_out) == sent.tobytes()
