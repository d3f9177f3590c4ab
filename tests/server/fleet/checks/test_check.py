"""Checking completes a config from real files, and survives whatever is in them."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from backends.errors import LoadFailed
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from server.fleet.checks.check import Checker, ConfigCompletion, _Child, complete_version
from server.fleet.checks.check_messages import CheckKind, CheckRequest
from support.runtime import make_version, save_unary


def run_with(
    checker_made: Callable[[], Checker], use: Callable[[Checker], Awaitable[None]]
) -> None:
    """Run `use` on a loop of its own, and leave no child behind."""

    async def body() -> None:
        checker = checker_made()
        try:
            async with asyncio.timeout(300):
                await use(checker)
        finally:
            await checker.close()

    asyncio.run(body())


async def until(done: Callable[[], bool]) -> None:
    """Look again every 10 ms; `run_with` bounds the whole."""
    for _ in range(6000):
        if done():
            return
        await asyncio.sleep(0.01)


def kill(child: int) -> None:
    """Returns when the child is dead, whether or not the loop has heard of it."""
    os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # the loop was quicker to reap it
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def children() -> list[int]:
    """Process ids of this process's living children that run the checker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat[1]) == os.getpid() and b"server.fleet.checks.check_version" in command:
                found.append(int(entry.name))
    return found


# finding the backend


def test_lone_onnx_file_is_enough(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    config = complete_version(version)

    assert config.backend == "onnxruntime"
    assert list(config.dynamic_batching.preferred_batch_size) == [4]


def test_tritons_platform_names_a_backend(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'platform: "onnxruntime_onnx"')
    save_unary(version.path / "model.onnx")

    assert complete_version(version).backend == "onnxruntime"


def test_file_name_in_the_config_tells_the_backend(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'default_model_filename: "net.onnx"')
    save_unary(version.path / "net.onnx")

    assert complete_version(version).backend == "onnxruntime"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("", r"which holds notes\.txt; put one of model\.onnx, model\.pt2, model\.pt, model\.py"),
        ('platform: "tensorflow_graphdef"', "unknown platform 'tensorflow_graphdef'; known are"),
        ('backend: "tensorrt"', "unknown backend 'tensorrt'; this server has: identity"),
        ('backend: "onnxruntime"', r"no model\.onnx in folder 1/, which holds notes\.txt"),
    ],
)
def test_version_without_a_backend_says_what_would_work(
    tmp_path: Path, config: str, complaint: str
) -> None:
    version = make_version(tmp_path, config)
    (version.path / "notes.txt").touch()

    with pytest.raises(LoadFailed, match=complaint):
        complete_version(version)


def test_completed_config_that_breaks_a_rule_is_refused(tmp_path: Path) -> None:
    version = make_version(tmp_path, "dynamic_batching { preferred_batch_size: 64 }")
    save_unary(version.path / "model.onnx")

    with pytest.raises(LoadFailed, match=r"model 'm' version 1: .*preferred_batch_size.*64"):
        complete_version(version)


def test_the_operator_chooses_how_much_is_filled_in(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        assert (await checker.complete(version)).max_batch_size == 16

    run_with(lambda: Checker(rules=ConfigCompletion(default_max_batch=16)), use)
    assert complete_version(version, ConfigCompletion(default_max_batch=0)).max_batch_size == 0
    with pytest.raises(LoadFailed, match="no input"):
        complete_version(version, ConfigCompletion(fill=False))


# in a process of its own


def test_child_gives_the_same_config(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        assert await checker.complete(version) == complete_version(version)

    run_with(Checker, use)


def test_child_gives_the_same_refusal(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (version.path / "model.onnx").write_bytes(b"\xff")

    async def use(checker: Checker) -> None:
        with pytest.raises(LoadFailed, match=r"model 'm' version 1: model\.onnx is not an ONNX"):
            await checker.complete(version)

    run_with(Checker, use)


def test_hostile_nesting_is_a_reason_and_the_next_model_is_served(tmp_path: Path) -> None:
    hostile, good = make_version(tmp_path, name="hostile"), make_version(tmp_path, name="good")
    save_unary(good.path / "model.onnx")
    nested = b""
    for _ in range(20_000):  # subgraphs in attributes in nodes, far beyond any recursion limit
        nested = b"\x32" + _varint(len(nested)) + nested
        nested = b"\x2a" + _varint(len(nested)) + nested
        nested = b"\x0a" + _varint(len(nested)) + nested
        if len(nested) > 200_000:
            break
    (hostile.path / "model.onnx").write_bytes(b"\x3a" + _varint(len(nested)) + nested)

    async def use(checker: Checker) -> None:
        with pytest.raises(LoadFailed, match=r"model 'hostile' version 1: .*model\.onnx"):
            await checker.complete(hostile)
        assert (await checker.complete(good)).backend == "onnxruntime"

    run_with(Checker, use)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def test_a_check_that_takes_too_much_memory_is_a_reason_and_the_next_model_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MB of empty nodes take 640 MB; 100 MB of them would take 8 GB."""
    monkeypatch.setattr("server.fleet.checks.check.MEMORY_BYTES", 128 << 20)
    nodes = b"\x0a\x00" * 4_000_000
    greedy = make_version(tmp_path / "greedy")
    (greedy.path / "model.onnx").write_bytes(b"\x08\x08\x3a" + _varint(len(nodes)) + nodes)
    honest = make_version(tmp_path / "honest")
    save_unary(honest.path / "model.onnx")

    async def use(checker: Checker) -> None:
        with pytest.raises(
            LoadFailed, match=r"bytes of memory, and may take \d+: 4 GiB and 8 times"
        ):
            await checker.complete(greedy)
        assert (await checker.complete(honest)).backend == "onnxruntime"

    run_with(Checker, use)


def test_check_that_never_ends_is_ended_and_says_so(tmp_path: Path) -> None:
    stuck, good = make_version(tmp_path, name="stuck"), make_version(tmp_path, name="good")
    save_unary(good.path / "model.onnx")
    os.mkfifo(stuck.path / "model.onnx")  # whoever opens it waits for a writer

    async def use(checker: Checker) -> None:
        await checker.complete(good)  # starts the child, whose start-up has no part in this
        checker._deadline_s = 2.0
        with pytest.raises(
            LoadFailed, match=r"'stuck' .* longer than 2 s while reading model\.onnx"
        ):
            await checker.complete(stuck)
        checker._deadline_s = 60.0
        assert (await checker.complete(good)).backend == "onnxruntime"

    run_with(Checker, use)


def test_child_that_is_killed_is_named_with_its_signal_and_replaced(tmp_path: Path) -> None:
    stuck, good = make_version(tmp_path, name="stuck"), make_version(tmp_path, name="good")
    save_unary(good.path / "model.onnx")
    os.mkfifo(stuck.path / "model.onnx")

    async def use(checker: Checker) -> None:
        await checker.complete(good)
        (child,) = children()
        asked = asyncio.create_task(checker.complete(stuck))
        await asyncio.sleep(0)
        os.kill(child, signal.SIGSEGV)
        with pytest.raises(LoadFailed, match=r"was killed by signal 11 \(SIGSEGV\) while reading"):
            await asked
        assert (await checker.complete(good)).backend == "onnxruntime"

    run_with(Checker, use)


def test_child_that_died_while_idle_blames_no_model(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        await checker.complete(version)
        (child,) = children()
        kill(child)
        assert (await checker.complete(version)).backend == "onnxruntime"

    run_with(Checker, use)


def test_idle_child_ends_by_itself(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        await checker.complete(version)
        assert len(children()) == 1
        await until(lambda: not children())

    run_with(lambda: Checker(idle_s=0.05), use)


def test_closing_leaves_no_child(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        await asyncio.gather(*[checker.complete(version) for _ in range(8)])
        assert 1 <= len(children()) <= 2

    run_with(Checker, use)

    assert children() == []


def test_two_hundred_small_models_are_checked_by_two_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [make_version(tmp_path, name=f"m{number}") for number in range(200)]
    for version in versions:
        save_unary(version.path / "model.onnx")

    started: list[object] = []
    start = MessageChild.start

    async def noted(program: ChildProgram) -> MessageChild:
        started.append(program)
        return await start(program)

    async def use(checker: Checker) -> None:
        await asyncio.gather(*[checker.complete(version) for version in versions])

    monkeypatch.setattr(MessageChild, "start", noted)
    run_with(lambda: Checker(idle_s=300.0, slow_s=300.0), use)
    assert 1 <= len(started) <= 2


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",  # 4 GiB
        b"\x05\0\0\0\xdd\x7f\xff\xff\xff",  # an array of two thousand million values
        b"\x01\0\0\0\x80",  # nothing
        b"\x03\0\0\0\x81\xa0\x90",  # a list
        b"\x10\0\0\0\x82\xa4type\xa4code\xa4uses\x01",  # code that is no list
    ],
)
def test_a_checker_that_answers_nonsense_is_killed(answer: bytes, tmp_path: Path) -> None:
    module = tmp_path / "taken_over.py"
    module.write_text(
        "import os, time\n"
        "def main(channel, parent):\n"
        f"    os.write(channel, {answer!r})\n"
        "    time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    async def body() -> None:
        program = ChildProgram("taken_over", "modelyard checker", "checker", environment)
        child = _Child(await MessageChild.start(program))
        with pytest.raises(ConnectionError):
            await child.ask(request())
        assert "message" in await child.cause_of_death()
        await child.end()

    asyncio.run(body())


def request() -> CheckRequest:
    return CheckRequest(
        kind=CheckKind.CONFIG,
        name="m",
        number=1,
        folder="/m",
        path="/m/1",
        config=b"",
        digest="",
        deadline_s=60.0,
        rules=ConfigCompletion(),
        memory_bytes=1 << 30,
        machine_bytes=0,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that chooses so")
def test_a_child_is_the_first_to_go_when_memory_runs_out(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")

    async def use(checker: Checker) -> None:
        await checker.complete(version)
        assert scores() == ["1000\n"]

    def scores() -> list[str]:
        return [Path(f"/proc/{child}/oom_score_adj").read_text() for child in children()]

    run_with(Checker, use)
