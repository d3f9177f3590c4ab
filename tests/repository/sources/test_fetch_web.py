"""Files and archives from a web server that breaks off, stalls, redirects and changes its mind."""

import asyncio
import resource
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from repository.sources.errors import (
    BadSource,
    TooLarge,
)
from repository.sources.fetch import FetchResult, fetch
from repository.sources.urls.url import parse
from support.fetched_files import BODY, ONE_TRY, digest_of, fetched, names, refusal
from support.sources import (
    LIMITS,
    MIB,
    Answer,
    Fault,
    File,
    Request,
    Seen,
    Site,
    redirect,
    site,
    until,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as made:
        yield made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


def begun_at(request: Request) -> int:
    return int(request.headers["range"].removeprefix("bytes=").removesuffix("-"))


def written(folder: Path, text: str) -> str:
    (folder / "netrc").write_text(text)
    return str(folder / "netrc")


async def test_a_file_arrives_with_its_digest_and_nothing_else(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY)
    found = await fetched(web, into)
    assert found == FetchResult(digest_of({"m.onnx": BODY}), {"m.onnx": len(BODY)})
    assert names(into) == ["m.onnx"]
    assert (into / "m.onnx").read_bytes() == BODY


async def test_a_cut_transfer_goes_on_where_it_stopped(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(cut=2 * MIB), Fault(cut=MIB // 2)]))
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == BODY
    # What the client had received and not yet read when the connection broke is asked for again.
    first, second = begun_at(web.requests[1]), begun_at(web.requests[2])
    assert MIB < first <= 2 * MIB
    assert first <= second <= first + MIB // 2
    assert web.requests[1].headers["if-range"] == '"v1"'


async def test_a_file_that_changed_meanwhile_begins_anew(web: Site, into: Path) -> None:
    file = File(BODY, faults=deque([Fault(cut=MIB)]))

    def changing(request: object) -> Answer:
        answer = file(request)  # type: ignore[arg-type]
        file.body, file.headers = b"new" * 100, {"ETag": '"v2"'}
        return answer

    web.pages["/m.onnx"] = changing
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == b"new" * 100


async def test_a_server_that_ignores_if_range_does_not_mix_two_files(web: Site, into: Path) -> None:
    file = File(BODY, faults=deque([Fault(cut=MIB)]), heeds_if_range=False)

    def changing(request: object) -> Answer:
        answer = file(request)  # type: ignore[arg-type]
        file.body, file.headers = BODY[::-1], {"ETag": '"v2"'}
        return answer

    web.pages["/m.onnx"] = changing
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == BODY[::-1]


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}])
async def test_without_a_way_to_tell_versions_a_cut_transfer_begins_anew(
    web: Site, into: Path, headers: dict[str, str]
) -> None:
    web.pages["/m.onnx"] = File(BODY, headers, deque([Fault(cut=MIB)]))
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == BODY
    assert "range" not in web.requests[1].headers


async def test_the_date_of_the_last_change_is_enough_to_go_on(web: Site, into: Path) -> None:
    date = formatdate(usegmt=True)
    web.pages["/m.onnx"] = File(BODY, {"Last-Modified": date}, deque([Fault(cut=MIB)]))
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == BODY
    assert web.requests[1].headers["if-range"] == date


async def test_a_stall_is_an_error_that_names_the_file_and_the_byte(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(stall=MIB)]))
    message = await refusal(web, into, limits=replace(ONE_TRY, stall_s=2.0))
    assert f"'m.onnx' at byte {MIB}: stalled: no byte for 2 s" in message
    assert (into / "m.onnx.part").stat().st_size == MIB


async def test_a_server_that_says_nothing_at_all_stalls_too(web: Site, into: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    try:
        web.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert "at byte 0: stalled" in await refusal(
            web, into, limits=replace(ONE_TRY, stall_s=0.2)
        )
    finally:
        server.close()


async def test_a_server_that_is_not_there_is_tried_a_few_times(web: Site, into: Path) -> None:
    web.url = "http://127.0.0.1:1"
    message = await refusal(web, into, limits=LIMITS)
    assert "the connection to 'http://127.0.0.1:1/m.onnx' failed" in message
    assert "after 3 attempts in a row" in message


async def test_the_whole_fetch_has_a_deadline(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(stall=MIB)]))
    message = await refusal(web, into, limits=replace(LIMITS, total_s=0.3))
    assert "took longer than 0.3 s; call again to go on" in message


async def test_a_cancelled_fetch_is_taken_up_by_the_next_call(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(stall=2 * MIB)]))
    part = into / "m.onnx.part"
    running = asyncio.create_task(fetched(web, into))
    await until(lambda: part.exists() and part.stat().st_size >= MIB)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    size = part.stat().st_size
    await fetched(web, into)
    assert web.requests[1].headers["range"] == f"bytes={size}-"
    assert (into / "m.onnx").read_bytes() == BODY
    assert names(into) == ["m.onnx"]


async def test_a_torn_last_line_of_the_journal_is_as_if_not_written(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(cut=MIB)]))
    await refusal(web, into)
    journal = into / ".fetch.jsonl"
    journal.write_text(journal.read_text() + '{"path": "m.on')
    await fetched(web, into)
    assert 0 < begun_at(web.requests[1]) <= MIB
    assert (into / "m.onnx").read_bytes() == BODY


async def test_a_folder_with_other_files_is_refused_and_left_alone(web: Site, into: Path) -> None:
    written(into.parent, "of another program")
    assert "is not empty; give a folder of its own" in await refusal(web, into.parent)
    assert names(into.parent) == ["netrc"]


async def test_a_folder_with_another_transfer_is_refused(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(cut=MIB)]))
    await refusal(web, into)
    assert "holds a transfer of" in await refusal(web, into, "/other.onnx")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_again(web: Site, into: Path, status: int) -> None:
    web.pages["/m.onnx"] = File(b"x", faults=deque([Fault(status)]))
    await fetched(web, into)
    assert len(web.requests) == 2


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_a_refusal_is_final_and_names_the_status(web: Site, into: Path, status: int) -> None:
    web.pages["/m.onnx"] = File(b"x", faults=deque([Fault(status)]))
    assert f"answers {status}" in await refusal(web, into, limits=LIMITS)
    assert len(web.requests) == 1


async def test_a_missing_permission_says_where_credentials_go(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(b"x", faults=deque([Fault(401)]))
    assert "NETRC" in await refusal(web, into)


async def test_credentials_go_to_the_host_they_are_for(
    web: Site, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", written(tmp_path, "machine 127.0.0.1 login me password secret\n"))
    async with site() as other:
        there = other.url.replace("127.0.0.1", "localhost")
        other.pages["/m.onnx"] = File(b"x")
        web.pages["/m.onnx"] = redirect(f"{there}/m.onnx")
        source = parse(f"{web.url}/m.onnx", [web.url, there])
        await fetch(source, into, LIMITS, Seen())
        assert web.requests[0].headers["authorization"] == "Basic bWU6c2VjcmV0"
        assert "authorization" not in other.requests[0].headers


async def test_a_redirect_to_a_private_name_is_refused(web: Site, into: Path) -> None:
    port = web.url.rpartition(":")[2]
    web.pages["/m.onnx"] = redirect(f"http://localhost:{port}/secret.onnx")
    assert "leads to an address that is loopback" in await refusal(web, into, limits=LIMITS)
    assert not web.asked("/secret.onnx")


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001"])
async def test_a_name_that_resolves_to_a_private_address_is_refused(
    web: Site, into: Path, host: str
) -> None:
    url = f"http://{host}:{web.url.rpartition(':')[2]}/m.onnx"
    with pytest.raises(BadSource, match=r"that is loopback|not a canonical"):
        await fetch(parse(url), into, LIMITS, Seen())
    assert not web.requests


async def test_endless_redirects_are_refused(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = redirect("/m.onnx")
    assert "redirects more than 5 times" in await refusal(web, into)


async def test_a_length_that_is_never_reached_is_an_error(web: Site, into: Path) -> None:
    wrong = Fault(headers=(("Content-Length", "5000"),))
    web.pages["/m.onnx"] = File(b"x" * 100, faults=deque([wrong]))
    assert "'m.onnx' at byte 100" in await refusal(web, into)


async def test_an_answer_without_an_end_is_refused(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = lambda request: Answer(200, {}, b"some")
    assert "does not tell where it ends" in await refusal(web, into)


async def test_a_compressed_answer_nobody_asked_for_is_refused(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(b"x", {"Content-Encoding": "gzip"})
    assert "comes as 'gzip'" in await refusal(web, into)


@pytest.mark.parametrize("announced", [True, False])
async def test_too_many_bytes_are_refused_while_they_come(
    web: Site, into: Path, announced: bool
) -> None:
    chunked = b"100000\r\n" + bytes(MIB) + b"\r\n"
    endless = Answer(200, {"Transfer-Encoding": "chunked"}, chunked * 3, stall=3 * len(chunked))
    web.pages["/m.onnx"] = File(BODY) if announced else lambda request: endless
    with pytest.raises(TooLarge, match="more than the limit of 2097152"):
        await fetched(web, into, limits=replace(LIMITS, max_bytes=2 * MIB))
    assert names(into) == []


async def test_a_server_that_goes_on_for_ever_bit_by_bit_is_given_up(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque(Fault(cut=1000) for _ in range(9)))
    assert "after 3 attempts in a row" in await refusal(web, into, limits=LIMITS)


async def test_progress_tells_bytes_files_and_the_current_file(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY)
    seen = Seen()
    await fetch(parse(f"{web.url}/m.onnx", [web.url]), into, LIMITS, seen)
    first, last = seen[0], seen[-1]
    assert (first.bytes_done, first.bytes_total, first.files_done) == (0, None, 0)
    assert (last.bytes_done, last.bytes_total) == (len(BODY), len(BODY))
    assert (last.files_done, last.files_total, last.file) == (1, 1, "m.onnx")
    assert last.bytes_per_s > 0


async def test_a_disk_that_takes_no_more_is_told_as_such(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    try:
        assert "cannot be stored: [Errno 27] File too large" in await refusal(web, into)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await fetched(web, into)
    assert (into / "m.onnx").read_bytes() == BODY


async def test_two_addresses_that_differ_in_their_query_are_two_sources(
    web: Site, into: Path
) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(cut=MIB)]))
    await refusal(web, into, "/m.onnx?v=1")
    message = await refusal(web, into, "/m.onnx?v=2")
    assert "holds a transfer of" in message
    assert "v=" not in message


async def test_a_damaged_journal_makes_the_folder_a_foreign_one(web: Site, into: Path) -> None:
    web.pages["/m.onnx"] = File(BODY, faults=deque([Fault(cut=MIB)]))
    await refusal(web, into)
    (into / ".fetch.jsonl").write_text("{\n{\n")
    assert "is not empty" in await refusal(web, into)
