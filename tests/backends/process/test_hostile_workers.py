"""Workers that speak the host's protocol by hand, and lie."""

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgpack
import numpy as np
import pytest
from msgspec.structs import replace

from backends.errors import InstanceDied, LoadFailed
from backends.process.instance import HostedInstance
from backends.process.layout import TensorBlock, unpack
from backends.process.messages import BatchExecuted, WorkerLoaded, decode, encode
from backends.process.reply_validation import (
    NONSENSE,
    loaded_as_promised,
    parameters,
)
from backends.response_sender import BoundedResponseSender
from repository.model import ModelConfig, ModelVersion
from repository.process.channel import Channel
from support.hosting import CPU, ECHO_CONFIG, batch_of, floats, hosted, one, until, write_model

_BY_HAND = """
import array, os, socket, struct, sys, time
import msgpack
import triton_python_backend_utils as pb_utils

link = socket.socket(fileno=os.dup(int(sys.argv[2])))

def say(tag, *fields):
    packed = msgpack.packb((tag, *fields))
    link.sendall(struct.pack("<I", len(packed)) + packed)

class TritonPythonModel:
    def execute(self, requests):
"""
_DESCRIPTORS = """
        null = os.open("/dev/null", os.O_RDONLY)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null]))]
        link.sendall(struct.pack("<I", 1 << 20))
        for _ in range(2_000):
            link.sendmsg([b"x"], rights)
        time.sleep(60)
"""
_RESPONSES = """
        requests[0].get_response_sender()
        for _ in range(1_000):
            say("part", 0, False, False, None, [], b"", "")
        time.sleep(60)
"""
_UNASKED = """
        for _ in range(1_000):
            say("executed", {}, [], 0, 0, 0, {}, False)
        time.sleep(60)
"""
DECOUPLED = ECHO_CONFIG + "model_transaction_policy { decoupled: true }\n"


def test_a_worker_that_floods_the_server_with_descriptors_is_killed(tmp_path: Path) -> None:
    with hosted(tmp_path, _BY_HAND + _DESCRIPTORS) as instance:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(InstanceDied, match=r"sent an invalid message.*more descriptors"):
            one(instance, floats(1))
        assert len(os.listdir("/proc/self/fd")) < before + 20


@pytest.mark.parametrize(
    ("body", "reason"), [(_RESPONSES, "nobody has read"), (_UNASKED, "without a request")]
)
def test_a_worker_that_streams_more_than_was_asked_for_is_killed(
    body: str, reason: str, tmp_path: Path
) -> None:
    with hosted(tmp_path, _BY_HAND + body, DECOUPLED) as instance:
        outlet = BoundedResponseSender(lambda part: None)
        with suppress(InstanceDied):  # unless it is hanging yet
            instance.stream(batch_of(floats(1)), [outlet])
        until(lambda: instance.crash_history.deaths > 0)
        assert reason in instance.crash_history.ending


def test_a_worker_that_loads_as_another_model_fails_the_load(tmp_path: Path) -> None:
    head, _, _ = _BY_HAND.partition("class ")
    lie = 'say("loaded", b"", "cpu", float("nan"), False, False); time.sleep(60)\n'
    with pytest.raises(LoadFailed, match=r"sent an invalid message.*Expected `int`, got `float`"):
        HostedInstance(write_model(tmp_path, head + lie), CPU, "echo_0_0")


def test_a_frame_of_many_small_parts_is_refused_before_they_are_made() -> None:
    parts = 16 << 20
    bomb = b"\x92\xa8executed\xdd" + parts.to_bytes(4, "big") + b"\x91\x90" * (parts // 2)
    nested = b"\x92\xa8executed" + b"\xdc\xff\xff" + (b"\xdc\xff\xff" + b"\x90" * 0xFFFF) * 64
    for payload in (bomb, nested):
        began = time.process_time()
        with pytest.raises(ValueError, match=r"max_array_len|parts"):
            decode(payload)
        assert time.process_time() - began < 1.0


def test_a_large_batch_of_honest_parts_is_read() -> None:
    shapes = tuple((1, 16) for _ in range(20_000))
    answer = BatchExecuted({}, (TensorBlock("OUT", "FP32", 0, shapes),), 1, 2, 3, {}, False)
    assert decode(encode(answer)) == answer


def test_descriptors_that_no_message_announces_are_counted() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs, open(os.devnull) as file:
        theirs.sendall((1 << 20).to_bytes(4, "little"))
        for _ in range(5):
            socket.send_fds(theirs, [b"x"], [file.fileno()])
        with pytest.raises(ValueError, match="more descriptors"):
            channel.receive()
    channel.close()


def test_tensors_that_lie_over_one_another_are_refused() -> None:
    region = np.zeros(1024, np.uint8)
    numbers = [TensorBlock(f"X{i}", "UINT8", 0, ((600,),)) for i in range(2)]
    texts = [TensorBlock(f"X{i}", "BYTES", 0, ((150,),)) for i in range(2)]
    for blocks in (numbers, texts):
        with pytest.raises(ValueError, match="over one another"):
            unpack(blocks, 1, region)


def _version(tmp_path: Path) -> ModelVersion:
    return ModelVersion("m", 1, tmp_path, tmp_path, ModelConfig(name="m", backend="python"), "")


@pytest.mark.parametrize(
    "changed",
    [{"name": "other"}, {"backend": "llm"}, {"parameters": {"network": {"string_value": "true"}}}],
)
def test_a_completed_config_is_of_the_same_model_backend_and_sandbox(
    changed: dict[str, object], tmp_path: Path
) -> None:
    version = _version(tmp_path)
    honest = ModelConfig(name="m", backend="python", max_batch_size=4)
    loaded = WorkerLoaded(honest.SerializeToString(), "cpu", 1, False)
    assert loaded_as_promised(loaded, version) == loaded
    honest.MergeFrom(ModelConfig(**changed))
    with pytest.raises(ValueError, match="changed the"):
        loaded_as_promised(replace(loaded, config=honest.SerializeToString()), version)


def test_claims_of_the_wrong_kind_are_nonsense(tmp_path: Path) -> None:
    good = WorkerLoaded(b"", "cpu", 1, False)
    for wrong in ({"cores": -1}, {"cores": 1 << 40}, {"config": b"x"}):
        with pytest.raises(NONSENSE):
            loaded_as_promised(replace(good, **wrong), _version(tmp_path))
    executed = BatchExecuted({}, (), 1, 2, 3, {}, False)
    for field in ("input_ns", "infer_ns", "output_ns", "state_bytes"):
        for number in (-1, 1 << 62):
            with pytest.raises(NONSENSE):
                decode(encode(replace(executed, **{field: number})))
    for text in ("[" * 100_000, '"' + "x" * (1 << 20) + '"', 7):
        with pytest.raises(NONSENSE):
            parameters(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        ("loaded", b"", "cpu", 1.0, False, False),
        ("loaded", b"", "cpu", True, False, False),
        ("loaded", b"", 1, 1, False, False),
        ("loaded", "text", "cpu", 1, False, False),
        ("executed", {}, [], 0, float("nan"), 0, {}, False),
        ("executed", {}, [], 0, "1", 0, {}, False),
        ("executed", {}, [["X", "FP32", 0, [[1.5]]]], 0, 1, 0, {}, False),
        ("executed", {"0": ["ModelError", "", ""]}, [], 0, 1, 0, {}, False),
        ("failed", ["ModelError", 7, ""], False),
        ("failed", ["ModelError", "no code"], False),
        ("failed",),
        ("nonsense", 1),
        (4, {}, [], 0, 0, 0, {}, False),
        "failed",
    ],
    ids=str,
)
def test_fields_of_the_wrong_kind_are_no_message(said: object) -> None:
    with pytest.raises(ValueError, match=r"Expected|Invalid|missing"):
        decode(msgpack.packb(said))
