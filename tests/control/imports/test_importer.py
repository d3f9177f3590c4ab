"""Models from URLs become what is deployed, whatever happens on the way."""

import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from control.clock import utc_now
from control.desired_rows import desired
from control.imports import service as imports
from control.sql.database import Database
from control.tables import Audit, Version
from control.views import ImportView
from repository.sources.digest import tree
from support.control import ADA, rows, told
from support.imports import Running, importing, onnx_model, tar
from support.sources import MIB, Fault, File, Site, redirect, site

pytestmark = pytest.mark.anyio

WHOLE = {"digits/1/model.onnx": onnx_model(2.0), "digits/2/model.onnx": onnx_model(3.0)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def database(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Database]:
    """One kind is enough here: tests/control has the rows on both."""
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    yield opened
    opened.close()


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as one:
        one.pages["/one.onnx"] = File(onnx_model(2.0))
        one.pages["/two.onnx"] = File(onnx_model(3.0))
        one.pages["/digits.tar.gz"] = File(tar(WHOLE))
        yield one


@pytest.fixture
async def running(database: Database, tmp_path: Path, web: Site) -> AsyncIterator[Running]:
    async with importing(database, tmp_path / "store", (web.url,), (tmp_path / "models",)) as one:
        yield one


def wish(running: Running, url: str, model: str = "digits", **more: Any) -> ImportView:
    with running.database.change(ADA) as tx:
        view = imports.begin(tx, url, model, allowed=running.terms.allowed, **more)
    running.importer.ring()
    return view


def deployed_files(running: Running, model: str = "digits") -> dict[str, bytes]:
    with running.database.reading() as session:
        wanted = {one.name: one for one in desired(session, utc_now()).models}
    folder = running.store / "snapshots" / wanted[model].snapshot / model
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_an_archive_becomes_what_is_deployed(running: Running, web: Site) -> None:
    asked = wish(running, f"{web.url}/digits.tar.gz?download=1")
    view = await running.ended(asked.id)
    assert (view.state, view.reason) == ("deployed", "")
    assert view.url == f"{web.url}/digits.tar.gz"
    assert list(view.versions) == ["1", "2"]
    files = {f"digits/{path}": body for path, body in deployed_files(running).items()}
    assert files == WHOLE
    running.loaded("digits")
    view = await running.until(asked.id, lambda view: view.finished_at is not None)
    assert view.state == "served"
    states = [kind for kind, subject in told(running.database) if subject == f"import:{asked.id}"]
    assert [kind for kind in states if kind != "import.progress"] == [
        f"import.{state}" for state in ("queued", "fetching", "checking", "deployed", "served")
    ]
    version = rows(running.database, Version)[0]
    assert (version.source, version.pusher) == (view.url, "user:ada")
    assert "download" not in str([vars(row) for row in rows(running.database, Audit)])


async def test_the_staging_folder_is_gone_once_it_is_deployed_and_served(
    running: Running, web: Site
) -> None:
    asked = wish(running, f"{web.url}/one.onnx")
    await running.ended(asked.id)
    running.loaded("digits")
    await running.until(asked.id, lambda _: not any((running.store / "imports").iterdir()))


async def test_a_second_version_keeps_the_first(running: Running, web: Site) -> None:
    await running.ended(wish(running, f"{web.url}/one.onnx").id)
    view = await running.ended(wish(running, f"{web.url}/two.onnx").id)
    assert list(view.versions) == ["2"]
    assert deployed_files(running) == {
        "1/model.onnx": onnx_model(2.0),
        "2/model.onnx": onnx_model(3.0),
    }


async def test_other_bytes_under_an_existing_version_are_refused(
    running: Running, web: Site
) -> None:
    await running.ended(wish(running, f"{web.url}/one.onnx", version=1).id)
    view = await running.ended(wish(running, f"{web.url}/two.onnx", version=1).id)
    assert view.state == "failed"
    assert "has other bytes under its existing version 1" in view.reason
    assert deployed_files(running) == {"1/model.onnx": onnx_model(2.0)}


@pytest.mark.slow
async def test_the_same_bytes_again_change_nothing(running: Running, web: Site) -> None:
    await running.ended(wish(running, f"{web.url}/one.onnx", version=1).id)
    view = await running.ended(wish(running, f"{web.url}/one.onnx", version=1).id)
    assert view.state == "deployed"
    assert len(rows(running.database, Version)) == 1


@pytest.mark.slow
async def test_a_wrong_digest_is_refused_naming_both(
    running: Running, web: Site, tmp_path: Path
) -> None:
    (tmp_path / "same").mkdir()
    (tmp_path / "same/one.onnx").write_bytes(onnx_model(2.0))
    right, wrong = tree(tmp_path / "same", Event()).digest, "sha256:" + "0" * 64
    view = await running.ended(wish(running, f"{web.url}/one.onnx", expected_digest=wrong).id)
    assert view.state == "failed"
    assert right in view.reason
    assert wrong in view.reason
    view = await running.ended(wish(running, f"{web.url}/one.onnx", expected_digest=right).id)
    assert (view.state, view.digest) == ("deployed", right)


@pytest.mark.slow
async def test_a_store_that_stalls_is_given_up_naming_the_byte(running: Running, web: Site) -> None:
    body = onnx_model(2.0, 2 * MIB)
    web.pages["/slow.onnx"] = File(body, faults=deque([Fault(stall=MIB // 2)] * 9))
    view = await running.ended(wish(running, f"{web.url}/slow.onnx").id)
    assert view.state == "failed"
    assert "'slow.onnx' at byte" in view.reason
    assert "stalled: no byte for 5 s" in view.reason


@pytest.mark.slow
async def test_a_fetching_process_that_is_killed_is_followed_by_one_that_goes_on(
    running: Running, web: Site
) -> None:
    body = onnx_model(2.0, 4 * MIB)
    web.pages["/large.onnx"] = File(body, faults=deque([Fault(stall=2 * MIB)]))
    asked = wish(running, f"{web.url}/large.onnx")
    part = running.store / "imports" / asked.id / "part/large.onnx.part"
    await running.until(asked.id, lambda _: part.exists() and part.stat().st_size >= MIB)
    os.kill(_fetcher(), signal.SIGKILL)
    view = await running.ended(asked.id)
    assert view.state == "deployed"
    assert web.requests[-1].headers["range"].startswith("bytes=")
    assert deployed_files(running) == {"1/model.onnx": body}


@pytest.mark.slow
async def test_a_new_importer_goes_on_where_the_last_one_stopped(
    database: Database, tmp_path: Path, web: Site
) -> None:
    body = onnx_model(2.0, 4 * MIB)
    web.pages["/large.onnx"] = File(body, faults=deque([Fault(stall=2 * MIB)]))
    async with importing(database, tmp_path, (web.url,)) as first:
        asked = wish(first, f"{web.url}/large.onnx")
        part = tmp_path / "imports" / asked.id / "part/large.onnx.part"
        await first.until(asked.id, lambda _: part.exists() and part.stat().st_size >= MIB)
    assert first.view(asked.id).state == "fetching"
    async with importing(database, tmp_path, (web.url,)) as second:
        assert (await second.ended(asked.id)).state == "deployed"
    assert web.requests[-1].headers["range"].startswith("bytes=")


@pytest.mark.slow
async def test_progress_is_told_and_only_the_latest_is_kept(running: Running, web: Site) -> None:
    body = onnx_model(2.0, 4 * MIB)
    faults = deque([Fault(stall=MIB), Fault(stall=MIB)])
    web.pages["/large.onnx"] = File(body, faults=faults)
    asked = wish(running, f"{web.url}/large.onnx")
    view = await running.until(asked.id, lambda view: view.progress.bytes_done > 0)
    assert view.progress.bytes_total == len(body)
    await running.ended(asked.id)
    progress = [kind for kind, _ in told(running.database) if kind == "import.progress"]
    assert len(progress) == 1


async def test_a_cancelled_import_stops_and_leaves_nothing(running: Running, web: Site) -> None:
    web.pages["/large.onnx"] = File(onnx_model(2.0, 2 * MIB), faults=deque([Fault(stall=MIB)] * 9))
    asked = wish(running, f"{web.url}/large.onnx")
    await running.until(asked.id, lambda view: view.state == "fetching")
    with running.database.change(ADA) as tx:
        imports.cancel(tx, asked.id)
    running.importer.ring()
    left = running.store / "imports" / asked.id
    view = await running.until(asked.id, lambda _: not left.exists())
    assert (view.state, view.versions) == ("cancelled", {})


async def test_a_redirect_to_a_private_address_is_refused(
    database: Database, tmp_path: Path, web: Site
) -> None:
    async with site() as other:
        other.pages["/one.onnx"] = File(onnx_model())
        web.pages["/away.onnx"] = redirect(f"{other.url}/one.onnx")
        async with importing(database, tmp_path, (web.url,)) as running:
            view = await running.ended(wish(running, f"{web.url}/away.onnx").id)
        assert view.state == "failed"
        assert "leads to an address that is loopback" in view.reason
        assert not other.requests


async def test_what_can_carry_code_is_refused(running: Running, web: Site) -> None:
    files = {"m/model.py": b"import os", "m/config.json": b"{}"}
    web.pages["/code.tar.gz"] = File(tar(files))
    view = await running.ended(wish(running, f"{web.url}/code.tar.gz").id)
    assert view.state == "failed"
    assert "'model.py' cannot be imported" in view.reason


async def test_a_file_that_is_no_model_is_refused(running: Running, web: Site) -> None:
    web.pages["/bad.onnx"] = File(b"not a model")
    view = await running.ended(wish(running, f"{web.url}/bad.onnx").id)
    assert view.state == "failed"
    assert "digits/1" in view.reason
    assert not rows(running.database, Version)


async def test_a_name_in_a_model_repository_folder_is_refused(
    running: Running, web: Site, tmp_path: Path
) -> None:
    (tmp_path / "models/digits").mkdir(parents=True)
    view = await running.ended(wish(running, f"{web.url}/one.onnx").id)
    assert "lies in the model repository folder 'models'" in view.reason
    assert not web.requests


async def test_a_gateway_that_cannot_load_it_is_the_reason(running: Running, web: Site) -> None:
    asked = wish(running, f"{web.url}/one.onnx")
    await running.ended(asked.id)
    running.loaded("digits", "FAILED", "no memory")
    view = await running.until(asked.id, lambda view: view.finished_at is not None)
    assert (view.state, view.reason) == ("failed", "digits 1: no memory")


def _fetcher() -> int:
    """The process id of our child that fetches."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"control.imports.fetch_job" in command and int(parent) == os.getpid():
                return int(name)
    raise AssertionError("nobody fetches")


@pytest.mark.slow
async def test_a_model_folder_in_a_bucket_is_imported(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{moto.get_host_and_port()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        files = s3fs.S3FileSystem(asynchronous=True, skip_instance_cache=True)
        client = await files.set_session()
        await client.create_bucket(Bucket="models")
        for path, body in WHOLE.items():
            await client.put_object(Bucket="models", Key=f"team/{path}", Body=body)
        await client.close()
        async with importing(database, tmp_path, ("s3://models/team",)) as running:
            asked = wish(running, "s3://models/team/digits", version=2)
            view = await running.ended(asked.id)
            assert (view.state, view.reason) == ("deployed", "")
            assert deployed_files(running) == {"2/model.onnx": WHOLE["digits/2/model.onnx"]}
    finally:
        moto.stop()
