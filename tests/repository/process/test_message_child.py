"""Children that an event loop asks: they answer, end when they are told to, and leave nothing."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from repository.process.selector_loop import watch
from repository.process.state import process_state
from support.fleet import eventually

_CODE = """
import os, signal, subprocess, sys, time
from repository.process.parent import connect

def main(channel_fd, *more):
    channel = connect(channel_fd, more[-1])
    while True:
        asked = channel.receive().payload
        if asked == b"stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if asked == b"hang up":
            channel.close()
            time.sleep(600)
        if asked == b"print":
            print("on stdout", flush=True)
            print("on stderr", file=sys.stderr, flush=True)
        if asked == b"exit":
            return 7
        if asked == b"start another":
            asked = str(subprocess.Popen(["sleep", "600"]).pid).encode()
        if asked == b"read the other":
            asked = os.read(more[0], 100)
        channel.send(asked)
"""
LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)
MOST = 1 << 20

Use = Callable[[MessageChild], Awaitable[None]]


@pytest.fixture
def program(tmp_path: Path) -> ChildProgram:
    (tmp_path / "child_of_a_test.py").write_text(_CODE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return ChildProgram("child_of_a_test", "modelyard test", "child", environment)


def run(program: ChildProgram, use: Use, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def body() -> None:
        child = await MessageChild.start(program)
        try:
            async with asyncio.timeout(60):
                await use(child)
        finally:
            await child.stop(0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(body())


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_of_any_size_are_answered_in_order(
    program: ChildProgram, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def use(child: MessageChild) -> None:
        for sent in (b"one", b"", b"x" * (MOST - 1)):
            assert await child.ask(sent, MOST) == sent

    run(program, use, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_end_is_told_with_its_status(
    program: ChildProgram, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def use(child: MessageChild) -> None:
        with pytest.raises(EOFError):
            await child.ask(b"exit", MOST)
        assert await child.outcome() == "exited with status 7"
        assert child.status == 7
        assert not child.is_alive

    run(program, use, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_that_was_killed_is_a_connection_error_and_no_hang(
    program: ChildProgram, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def use(child: MessageChild) -> None:
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises((EOFError, ConnectionError)):
            await talk(child)
        assert await child.outcome() == "was killed by signal 9 (SIGKILL)"
        with pytest.raises(ConnectionError):
            await fill(child)

    run(program, use, loop)


async def talk(child: MessageChild) -> None:
    for _ in range(100):
        await child.ask(b"x" * 65536, MOST)


async def fill(child: MessageChild) -> None:
    for _ in range(100):
        await child.send(b"x" * 65536)


def test_one_that_hangs_up_and_goes_on_is_killed(program: ChildProgram) -> None:
    async def use(child: MessageChild) -> None:
        with pytest.raises(EOFError):
            await child.ask(b"hang up", MOST)
        assert await child.outcome() == "closed its connection and was killed"

    run(program, use, asyncio.new_event_loop)


def test_a_message_that_is_too_large_ends_it(program: ChildProgram) -> None:
    async def use(child: MessageChild) -> None:
        with pytest.raises(ConnectionError, match="100 bytes"):
            await child.ask(b"x" * 100, 99)
        assert await child.gone() == "sent a message of 100 bytes and was killed"

    run(program, use, asyncio.new_event_loop)


def test_it_ends_by_itself_when_its_parent_hangs_up(program: ChildProgram) -> None:
    async def use(child: MessageChild) -> None:
        await child.ask(b"one", MOST)
        assert await child.stop(60)

    run(program, use, asyncio.new_event_loop)


def test_one_that_ignores_sigterm_is_killed_after_the_grace(program: ChildProgram) -> None:
    async def use(child: MessageChild) -> None:
        await child.ask(b"stubborn", MOST)
        os.kill(child.pid, signal.SIGSTOP)
        assert not await child.stop(0.05, terminate=True)
        assert child.status == -signal.SIGKILL

    run(program, use, asyncio.new_event_loop)


def test_what_it_started_ends_with_it(program: ChildProgram) -> None:
    async def use(child: MessageChild) -> None:
        other = int(await child.ask(b"start another", MOST))
        child.kill()
        await child.gone()
        await eventually(lambda: process_state(other) in ("", "Z"))

    run(program, use, asyncio.new_event_loop)


def test_what_it_prints_comes_into_the_log_under_its_name(
    program: ChildProgram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def use(child: MessageChild) -> None:
        await child.ask(b"print", MOST)
        await eventually(lambda: caplog.text.count("child: on std") == 2)

    run(program, use, asyncio.new_event_loop)
    assert ("modelyard.worker", logging.INFO, "child: on stdout") in caplog.record_tuples
    assert ("modelyard.worker", logging.WARNING, "child: on stderr") in caplog.record_tuples


def test_it_is_given_copies_of_descriptors(program: ChildProgram) -> None:
    async def body() -> None:
        reading, writing = os.pipe()
        child = await MessageChild.start(program, (reading,))
        os.close(reading)
        os.write(writing, b"through the pipe")
        os.close(writing)
        assert await child.ask(b"read the other", MOST) == b"through the pipe"
        await child.stop(60)

    asyncio.run(body())


def test_a_start_that_nobody_waits_for_leaves_no_process(program: ChildProgram) -> None:
    async def body() -> None:
        go_on = threading.Event()
        watch().post(lambda: assert_set(go_on))
        starting = asyncio.ensure_future(MessageChild.start(program))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        go_on.set()
        await eventually(lambda: not watch().call(children))

    asyncio.run(body())


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


def children() -> list[str]:
    """Those that the calling thread started, by the kernel's word."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_a_program_that_cannot_be_started_is_an_os_error(
    program: ChildProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(MessageChild.start(program))
