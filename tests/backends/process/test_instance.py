import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, InstanceDied, LoadFailed
from backends.limits import ExecutionLimit
from backends.loading import load
from backends.process.instance import HostedInstance
from repository.process import child
from support.hosting import (
    CPU,
    Ask,
    alive,
    batch_of,
    floats,
    until,
    write_model,
)

OBEDIENT = """
import os, signal, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        order = json_order(requests[0])
        if order == "exit":
            os._exit(7)
        if order == "quit":
            sys.exit("enough")
        if order == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            import ctypes
            ctypes.string_at(0)
        if order == "sleep":
            open(os.environ["HOST_TEST_SIGN"], "w").close()
            time.sleep(60)
        if order == "flood":
            for _ in range(200_000):
                print("x" * 50)
        if order == "keep":
            self.kept = requests[0].inputs()[0].as_numpy()
        if order == "kept":
            out = pb_utils.Tensor("OUT", self.kept)
            return [pb_utils.InferenceResponse([out]) for _ in requests]
        if order == "raise":
            raise KeyError("no such thing")
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])
            for r in requests
        ]

def json_order(request):
    import json
    return json.loads(request.parameters()).get("order")
"""


def order(what: str) -> Ask:
    ask = floats(1.0, 2.0)
    ask.parameters["order"] = what
    return ask


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file the model creates when it has begun to sleep."""
    path = tmp_path / "sleeping"
    monkeypatch.setenv("HOST_TEST_SIGN", str(path))
    return path


@pytest.fixture
def obedient(
    tmp_path: Path, sign: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostedInstance]:
    """However slow the machine, a worker that ends is given the time to."""
    monkeypatch.setattr(child, "_HANG_UP_SECS", 60.0)
    monkeypatch.setattr(child, "_LAST_LINES_SECS", 30.0)
    instance = HostedInstance(write_model(tmp_path, OBEDIENT), CPU, "echo_0_0")
    yield instance
    instance.close()


def kill_and_await_another(instance: HostedInstance) -> None:
    pid = instance.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: instance.ready and instance.pid != pid)


def test_results_stay_as_they_are_when_later_batches_reuse_the_region(
    obedient: HostedInstance,
) -> None:
    first = obedient.execute(batch_of(floats(1, 2))).results[0]
    obedient.execute(batch_of(floats(8, 9)))
    assert first["OUT"].tolist() == [[1, 2]]


def test_a_model_that_keeps_an_input_never_sees_another_requests_values(
    obedient: HostedInstance,
) -> None:
    keep = order("keep")
    obedient.execute(batch_of(keep))
    obedient.execute(batch_of(floats(8, 9)))
    kept = obedient.execute(batch_of(order("kept"))).results[0]
    assert kept["OUT"].tolist() == keep.inputs["IN"].tolist()


def test_regions_grow_with_the_batches(obedient: HostedInstance) -> None:
    for count in (1, 100_000, 10, 3_000_000, 0):
        ask = Ask({"IN": np.arange(count, dtype=np.float32)[None]})
        result = obedient.execute(batch_of(ask)).results[0]
        assert np.array_equal(result["OUT"], ask.inputs["IN"])


def test_kill_9_while_executing_fails_the_batch_at_once_and_the_worker_returns(
    obedient: HostedInstance, sign: Path
) -> None:
    pid = obedient.pid
    assert pid is not None
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(obedient.execute, batch_of(order("sleep")))
        until(sign.exists)
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InstanceDied, match=r"model 'echo' version 1.*signal 9 .SIGKILL"):
            running.result(60)
    assert time.monotonic() - killed_at < 20
    until(lambda: obedient.ready)
    assert obedient.execute(batch_of(floats(5))).results[0]["OUT"].tolist() == [[5]]
    assert not alive(pid)


def test_kill_9_of_an_idle_worker_is_noticed_and_told(obedient: HostedInstance) -> None:
    seen: list[bool] = []
    obedient.changed = lambda: seen.append(obedient.ready)
    kill_and_await_another(obedient)
    until(lambda: seen == [False, True])


def test_how_and_since_when_workers_die_is_told(obedient: HostedInstance) -> None:
    before = time.time()
    kill_and_await_another(obedient)
    first = obedient.crash_history
    assert (first.deaths, first.since) == (1, first.last)
    assert before <= first.since <= time.time()
    kill_and_await_another(obedient)
    told = obedient.crash_history
    assert (told.deaths, told.since) == (2, first.since)
    assert "SIGKILL" in told.ending


STAYS_AWAY = """
import os, time
class TritonPythonModel:
    def initialize(self, args):
        sign = os.environ["HOST_TEST_SIGN"]
        if os.path.exists(sign):
            open(sign + "2", "w").close()
            time.sleep(60)
        open(sign, "w").close()
    def execute(self, requests): ...
"""
"""Its second life does not begin for a minute."""


def test_an_execution_between_two_lives_fails_at_once(tmp_path: Path, sign: Path) -> None:
    instance = HostedInstance(write_model(tmp_path, STAYS_AWAY), CPU, "echo_0_0")
    try:
        assert instance.pid is not None
        os.kill(instance.pid, signal.SIGKILL)
        until(Path(f"{sign}2").exists)
        with pytest.raises(InstanceDied, match="is being restarted"):
            instance.execute(batch_of(floats(1)))
    finally:
        instance.close()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("exit", "exited with status 7"),
        ("quit", "exited with status 1; last line on stderr: 'enough'"),
        ("crash", "SIGSEGV.*Fatal Python error: Segmentation fault.*at File.*string_at"),
    ],
)
def test_a_model_that_ends_its_process_loses_only_its_batch(
    obedient: HostedInstance, what: str, told: str
) -> None:
    with pytest.raises(InstanceDied, match=told):
        obedient.execute(batch_of(order(what)))
    until(lambda: obedient.ready)
    assert obedient.execute(batch_of(floats(5))).results[0]["OUT"].tolist() == [[5]]


def test_an_exception_fails_its_batch_and_not_the_next(obedient: HostedInstance) -> None:
    pid = obedient.pid
    with pytest.raises(ExecutionFailed, match="KeyError: 'no such thing'"):
        obedient.execute(batch_of(order("raise"), floats(1)))
    assert obedient.execute(batch_of(floats(5))).results[0]["OUT"].tolist() == [[5]]
    assert obedient.pid == pid


def test_a_flood_on_stdout_does_not_block_the_worker(
    obedient: HostedInstance, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "modelyard.worker"):
        obedient.execute(batch_of(order("flood")))
        assert obedient.execute(batch_of(floats(5))).results[0]["OUT"].tolist() == [[5]]
    assert 0 < len(caplog.records) < 5_000


def test_an_execution_over_its_deadline_is_killed(tmp_path: Path, sign: Path) -> None:
    version = write_model(tmp_path, OBEDIENT)
    instance = HostedInstance(version, CPU, "echo_0_0", limit=ExecutionLimit(0.3))
    try:
        with pytest.raises(InstanceDied, match=r"for more than 0\.3 s without progress"):
            instance.execute(batch_of(order("sleep")))
        until(lambda: instance.ready)
    finally:
        instance.close()


@pytest.mark.slow
def test_a_stopped_idle_worker_is_killed_and_replaced(tmp_path: Path, sign: Path) -> None:
    instance = HostedInstance(write_model(tmp_path), CPU, "echo_0_0", heartbeat_timeout_secs=3.0)
    try:
        pid = instance.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        until(lambda: instance.ready and instance.pid != pid)
    finally:
        instance.close()


def test_close_ends_the_process_and_starts_no_other(tmp_path: Path) -> None:
    instance = HostedInstance(write_model(tmp_path), CPU, "echo_0_0")
    pid = instance.pid
    assert pid is not None
    instance.close()
    assert not alive(pid)
    assert not instance.ready


def test_close_ends_a_worker_that_is_being_restarted(tmp_path: Path, sign: Path) -> None:
    instance = HostedInstance(write_model(tmp_path, STAYS_AWAY), CPU, "echo_0_0")
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    until(Path(f"{sign}2").exists)
    started = time.monotonic()
    instance.close()
    assert time.monotonic() - started < 30


def test_a_load_over_its_deadline_fails(tmp_path: Path) -> None:
    code = """
    import time
    class TritonPythonModel:
        def initialize(self, args): time.sleep(60)
        def execute(self, requests): ...
    """
    with pytest.raises(LoadFailed, match=r"did not finish loading within 1.5 s"):
        HostedInstance(write_model(tmp_path, code), CPU, "echo_0_0", load_timeout_secs=1.5)


def test_a_worker_that_dies_while_loading_fails_the_load_with_its_last_words(
    tmp_path: Path,
) -> None:
    code = "import os, sys; print('out of cheese', file=sys.stderr, flush=True); os._exit(3)"
    with pytest.raises(LoadFailed, match=r"exited with status 3.*'out of cheese' while loading"):
        HostedInstance(write_model(tmp_path, code), CPU, "echo_0_0")


@pytest.mark.slow
def test_twenty_loads_leave_no_process_descriptor_or_memory_behind(tmp_path: Path) -> None:
    version = write_model(tmp_path)
    HostedInstance(version, CPU, "echo_0_0").close()
    gc.collect()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        instance = HostedInstance(version, CPU, "echo_0_0")
        instance.execute(batch_of(floats(1)))
        instance.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads
    assert not _children()
    maps = Path("/proc/self/maps").read_text()
    assert "memfd:modelyard" not in maps


def _children() -> list[str]:
    tasks = Path("/proc/self/task").iterdir()
    return [
        pid
        for task in tasks
        for pid in (task / "children").read_text().split()
        if b"modelyard worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_workers_die_with_the_server(tmp_path: Path) -> None:
    write_model(tmp_path)
    code = (
        "import sys; sys.path[:0] = ['.', 'tests']\n"
        "from pathlib import Path\n"
        "from support.hosting import *\n"
        "from backends.process.instance import HostedInstance\n"
        f"root = Path({str(tmp_path / 'other')!r})\n"
        "instance = HostedInstance(write_model(root), CPU, 'echo_0_0')\n"
        "print(instance.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        assert alive(worker)
        server.kill()
    until(lambda: not alive(worker))


def test_loading_several_instances_gives_each_a_process(tmp_path: Path) -> None:
    loaded = load(write_model(tmp_path), CPU, ["echo_0", "echo_1"])
    try:
        pids = {instance.pid for instance in loaded.instances}
        assert len(pids) == 2
        assert loaded.config.output[0].name == "OUT"
    finally:
        for instance in loaded.instances:
            instance.close()


def test_instances_that_complete_different_configs_fail_the_load(tmp_path: Path) -> None:
    code = """
    import os
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.set_max_batch_size(8 + os.getpid())
            return config
        def execute(self, requests): ...
    """
    with pytest.raises(LoadFailed, match="differently in each instance"):
        load(write_model(tmp_path, code), CPU, ["echo_0", "echo_1"])
    assert not _children()
