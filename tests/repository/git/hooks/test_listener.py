"""Hooks ask over a Unix socket whether a push may pass."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from repository.git.errors import BadBody, BadSocketPath
from repository.git.hooks import hook
from repository.git.hooks.hook import HookRequest, decode
from repository.git.hooks.hook_client import MOST_REQUEST_BYTES
from repository.git.hooks.listener import Answer, HookListener, Say
from support.git_http import accept, short_folder

UPDATE = f"{'0' * 40} {'a' * 40} refs/heads/main\n".encode()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made
        (made / "hooks").chmod(0o755) if (made / "hooks").exists() else None


async def asked(
    folder: Path, answer: Answer, name: str = "pre-receive", stdin: bytes = UPDATE, **given: str
) -> tuple[int, str]:
    """Run a hook as git would, beside a listener: its exit status and what it said."""
    listener = HookListener(folder / "s", answer, deadline_s=float(given.pop("deadline", "10")))
    await listener.start()
    try:
        return await run_hook(
            folder, name, stdin, MODELYARD_HOOK_SOCKET=str(listener.path), **given
        )
    finally:
        await listener.close()


async def run_hook(folder: Path, name: str, stdin: bytes, **given: str) -> tuple[int, str]:
    hook.install(folder / "hooks")
    process = await asyncio.create_subprocess_exec(
        folder / "hooks" / name,
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "LC_ALL": "C", **given},
    )
    _, said = await asyncio.wait_for(process.communicate(stdin), 60)
    assert process.returncode is not None
    return process.returncode, said.decode()


def run(work: Coroutine[Any, Any, tuple[int, str]]) -> tuple[int, str]:
    return asyncio.run(work)


async def refuse(request: HookRequest, say: Say) -> bool:
    say("no\nnever \x1b[31mred")
    say("  indented")
    return False


async def think(request: HookRequest, say: Say) -> bool:
    await asyncio.Event().wait()
    return True


def test_an_accepted_push_passes_in_silence(folder: Path):
    assert run(asked(folder, accept)) == (0, "")


def test_a_refused_push_hears_plain_lines_and_fails(folder: Path):
    assert run(asked(folder, refuse)) == (1, "no\nnever red\n  indented\n")


def test_refs_and_options_arrive_as_git_gave_them(folder: Path):
    heard: list[HookRequest] = []

    async def hear(request: HookRequest, say: Say) -> bool:
        heard.append(request)
        return True

    stdin = UPDATE + f"{'a' * 40} {'0' * 40} refs/heads/".encode() + b"caf\xe9 \xc3\xbc\n"
    options = {"GIT_PUSH_OPTION_COUNT": "2", "GIT_PUSH_OPTION_0": "a=b", "GIT_PUSH_OPTION_1": "ü"}
    assert run(asked(folder, hear, stdin=stdin, MODELYARD_PUSH_KEY="k", **options))[0] == 0
    assert heard[0].key == "k"
    assert heard[0].options == ("a=b", "ü")
    assert [u.ref for u in heard[0].updates] == ["refs/heads/main", "refs/heads/caf\udce9 ü"]


def test_without_a_server_a_push_is_refused_and_a_late_hook_only_says_so(folder: Path):
    gone = {"MODELYARD_HOOK_SOCKET": str(folder / "gone")}
    status, said = run(run_hook(folder, "pre-receive", UPDATE, **gone))
    assert (status, said.count("the server cannot be asked about this push")) == (1, 1)
    status, said = run(run_hook(folder, "post-receive", UPDATE, **gone))
    assert (status, said.count("the server cannot be asked about this push")) == (0, 1)


def test_a_server_that_stops_meanwhile_refuses_the_push(folder: Path):
    async def main() -> tuple[int, str]:
        async def stop(request: HookRequest, say: Say) -> bool:
            say("checking")
            closing.append(asyncio.create_task(listener.close()))
            await asyncio.Event().wait()
            return True

        closing: list[asyncio.Task[None]] = []
        listener = HookListener(folder / "s", stop)
        await listener.start()
        path = str(listener.path)
        answer = await run_hook(folder, "pre-receive", UPDATE, MODELYARD_HOOK_SOCKET=path)
        await closing[0]
        return answer

    status, said = run(main())
    assert status == 1
    assert said == "checking\nthe server stopped while it checked this push; try again\n"


def test_a_decision_has_a_deadline(folder: Path):
    status, said = run(asked(folder, think, deadline="0.2"))
    assert (status, said) == (1, "no decision within 0.2 s; try again\n")


def test_what_is_said_is_bounded(folder: Path):
    async def babble(request: HookRequest, say: Say) -> bool:
        for _ in range(5000):
            say("x" * 1000)
        return True

    status, said = run(asked(folder, babble))
    assert status == 0
    assert len(said) < 300_000
    assert said.endswith("… and more, left out here\n")


def test_a_push_of_very_many_refs_is_refused(folder: Path):
    status, said = run(asked(folder, accept, stdin=UPDATE * 12_000))
    assert (status, said) == (1, "the push moves too many refs at once; push fewer at a time\n")


def test_as_many_refs_as_fit_are_heard(folder: Path):
    fitting = MOST_REQUEST_BYTES // 115
    assert run(asked(folder, accept, stdin=UPDATE * fitting)) == (0, "")


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"{}", b"\xff", b'{"hook": "update"}', b"[" * 100_000,
     json.dumps({"hook": "pre-receive", "key": "k", "updates": [["--x", "y", "z"]],
                 "quarantine": {}, "options": []}).encode()],
)  # fmt: skip
def test_what_is_no_hooks_request_is_refused(line: bytes):
    with pytest.raises(BadBody, match="not a hook's request"):
        decode(line)


def test_the_socket_is_for_our_user_alone_and_goes_with_the_listener(folder: Path):
    async def main() -> None:
        (folder / "s").touch()
        with pytest.raises(BadSocketPath, match="is no socket"):
            await HookListener(folder / "s", accept).start()
        (folder / "s").unlink()
        with socket.socket(socket.AF_UNIX) as left_by_a_crash:
            left_by_a_crash.bind(str(folder / "s"))
        listener = HookListener(folder / "s", accept)
        await listener.start()
        assert (folder / "s").stat().st_mode & 0o777 == 0o600
        await listener.close()
        assert not (folder / "s").exists()

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_not_heard(folder: Path):
    async def main() -> tuple[int, bytes]:
        listener = HookListener(folder / "s", accept)
        await listener.start()
        os.chmod(folder, 0o755)
        os.chmod(listener.path, 0o666)
        script = (
            "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
            "s.connect(sys.argv[1]); sys.stdout.buffer.write(s.recv(100))"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(listener.path), stdout=subprocess.PIPE
        )
        heard, _ = await process.communicate()
        await listener.close()
        return process.returncode or 0, heard

    assert asyncio.run(main()) == (0, b"")


def test_a_path_too_long_for_a_socket_is_refused_with_the_reason():
    with pytest.raises(BadSocketPath, match="of 107 that Unix sockets allow; choose a shorter"):
        HookListener(Path("/" + "x" * 107), accept)
