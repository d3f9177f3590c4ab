"""The process that fetches: what it leaves, and what it makes of what an earlier one left."""

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.imports.fetch_messages import (
    FetchCommand,
    FetchProgress,
    FetchRefused,
    FetchReport,
    FetchSucceeded,
    decode_command,
    decode_report,
    encode,
)
from control.imports.fetching import FetcherDied, fetching
from repository.files.durable import lock
from repository.sources.progress import Progress
from support.imports import LIMITS
from support.sources import Fault, File, Site, site

pytestmark = pytest.mark.anyio
BODY = b"weights" * 1000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as one:
        one.pages["/m.onnx"] = File(BODY)
        yield one


def command(web: Site, folder: Path, path: str = "/m.onnx", digest: str = "") -> FetchCommand:
    return FetchCommand(f"{web.url}{path}", (web.url,), str(folder), digest, LIMITS)


async def reports(wanted: FetchCommand) -> list[FetchReport]:
    async with asyncio.timeout(60), fetching(wanted) as saying:
        return [one async for one in saying]


async def test_what_was_fetched_lies_whole_beside_its_digest(web: Site, tmp_path: Path) -> None:
    told = await reports(command(web, tmp_path))
    done = told[-1]
    assert isinstance(done, FetchSucceeded)
    assert all(isinstance(one, FetchProgress) for one in told[:-1])
    assert sorted(os.listdir(tmp_path)) == ["digest", "whole"]
    assert (tmp_path / "whole/m.onnx").read_bytes() == BODY
    assert (tmp_path / "digest").read_text() == done.digest


async def test_what_an_earlier_process_brought_is_not_fetched_again(
    web: Site, tmp_path: Path
) -> None:
    first = await reports(command(web, tmp_path))
    second = await reports(command(web, tmp_path))
    assert second == [first[-1]]
    assert len(web.requests) == 1


async def test_files_that_a_power_cut_damaged_are_fetched_anew(web: Site, tmp_path: Path) -> None:
    first = await reports(command(web, tmp_path))
    (tmp_path / "whole/m.onnx").write_bytes(bytes(len(BODY)))
    assert (await reports(command(web, tmp_path)))[-1] == first[-1]
    assert (tmp_path / "whole/m.onnx").read_bytes() == BODY


async def test_an_end_between_the_last_two_steps_is_begun_anew(web: Site, tmp_path: Path) -> None:
    first = await reports(command(web, tmp_path))
    (tmp_path / "whole").rename(tmp_path / "part")
    assert (await reports(command(web, tmp_path)))[-1] == first[-1]


async def test_a_refusal_is_told_in_words(web: Site, tmp_path: Path) -> None:
    web.pages["/gone.onnx"] = File(b"", faults=deque([Fault(status=404)]))
    told = (await reports(command(web, tmp_path, "/gone.onnx")))[-1]
    assert isinstance(told, FetchRefused)
    assert "answers 404" in told.reason


async def test_a_folder_is_one_process_alone(web: Site, tmp_path: Path) -> None:
    held = lock(tmp_path)
    try:
        with pytest.raises(FetcherDied, match="another process still fetches it"):
            await reports(command(web, tmp_path))
    finally:
        os.close(held)


async def test_it_goes_when_its_importer_goes(web: Site, tmp_path: Path) -> None:
    wanted = command(web, tmp_path)
    importer = await asyncio.create_subprocess_exec(sys.executable, "-c", _IMPORTER)
    assert await importer.wait() == 0
    assert not web.requests
    os.close(lock(tmp_path))  # nobody holds it
    assert isinstance((await reports(wanted))[-1], FetchSucceeded)


_IMPORTER = """
import asyncio, os
from control.imports import fetching
from repository.process.message_child import MessageChild

async def start_and_go():
    program = fetching.ChildProgram("control.imports.fetch_job", "fetch", "fetch", os.environ)
    await MessageChild.start(program)  # and says nothing
    os._exit(0)

asyncio.run(start_and_go())
"""


def test_commands_and_reports_arrive_as_they_were_sent() -> None:
    wanted = FetchCommand("https://x/y.onnx", ("https://x/",), "/f", "", LIMITS)
    assert decode_command(encode(wanted)) == wanted
    sent: list[FetchReport] = [
        FetchProgress(Progress(1, None, 0, 1, "a\nb", 0.5)),
        FetchSucceeded("sha256:0"),
        FetchRefused("no"),
    ]
    assert [decode_report(encode(one)) for one in sent] == sent
