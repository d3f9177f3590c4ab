"""`modelyard import` against a whole server: control process, fetching process, gateway."""

import asyncio
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.imports import onnx_model, tar
from support.sources import MIB, Fault, File, Site, site
from support.yard import Yard, yard

START_SECS = 60.0


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    """A web server on a thread of its own."""
    made: list[Site] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with site() as one:
            made.append(one)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(START_SECS)
    yield made[0]
    stop.set()
    thread.join(START_SECS)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory, web: Site) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard"), import_allow=web.url) as made:
        yield made


@pytest.mark.slow
def test_an_archive_is_imported_and_answers(y: Yard, web: Site) -> None:
    config = b'name: "digits"\nversion_policy { all {} }\n'
    files = {
        "digits/config.pbtxt": config,
        "digits/1/model.onnx": onnx_model(2.0),
        "digits/2/model.onnx": onnx_model(3.0),
    }
    web.pages["/digits.tar.gz"] = File(tar(files))
    made = y.cli_json("import", f"{web.url}/digits.tar.gz", "--model", "digits", "--follow")
    assert (made["state"], list(made["versions"])) == ("served", ["1", "2"])
    assert y.versions("digits") == [1, 2]
    sent = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    status, body = y.server.post("/v2/models/digits/versions/2/infer", {"inputs": [sent]})
    assert status == 200, body
    assert json.loads(body)["outputs"][0]["data"] == [3, 6, 9, 12]
    assert made["id"] in y.cli("imports", "list", "--model", "digits")
    version = y.cli_json("version", "show", "digits", "2")
    assert version["provenance"]["source"] == f"{web.url}/digits.tar.gz"


@pytest.mark.slow
def test_an_import_survives_the_death_of_the_control_process(y: Yard, web: Site) -> None:
    body = onnx_model(2.0, 4 * MIB)
    web.pages["/large.onnx"] = File(body, faults=deque([Fault(stall=2 * MIB)]))
    url = f"{web.url}/large.onnx"
    status, made = y.api("POST", "/imports", {"url": url, "model": "large"})
    assert status == 202
    part = y.state / "store/imports" / made["id"] / "part/large.onnx.part"
    y.wait_for(lambda: part.exists() and part.stat().st_size >= MIB, "the first bytes")
    told = {"import.queued", "import.fetching", "import.progress"}
    y.wait_for(lambda: told <= _events(y, made["id"]), "the events of it")
    os.kill(y.control_pid(), signal.SIGKILL)
    y.wait_versions("large", 1, seconds=60)
    assert [one.path for one in web.asked("/large.onnx")] == ["/large.onnx"] * 2
    assert web.asked("/large.onnx")[-1].headers["range"].startswith("bytes=")
    y.wait_for(lambda: _state(y, made["id"]) == "served", "the gateway's word")


@pytest.mark.slow
def test_a_refused_import_says_why_on_the_command_line(y: Yard, tmp_path: Path) -> None:
    said = y.cli("import", "https://example.com/x.onnx", "--model", "m", ok=False)
    assert "is not below an allowed source" in said
    said = y.cli("import", "http://169.254.169.254/x.onnx", "--model", "m", ok=False)
    assert "is not below an allowed source" in said


def _events(y: Yard, import_id: str) -> set[str]:
    page = y.api("GET", f"/events?subject=import:{import_id}")[1]
    return {one["kind"] for one in page["items"]}


def _state(y: Yard, import_id: str) -> str:
    return str(y.api("GET", f"/imports/{import_id}")[1]["state"])


@pytest.mark.slow
@pytest.mark.parametrize("point", ["import.fetched", "import.snapshot_written", "import.deployed"])
def test_a_crash_between_any_two_steps_is_repaired_by_the_next_start(
    tmp_path: Path, web: Site, point: str
) -> None:
    web.pages["/one.onnx"] = File(onnx_model(2.0))
    with yard(tmp_path, {"MODELYARD_CRASH_AT": point}, import_allow=web.url) as y:
        body = {"url": f"{web.url}/one.onnx", "model": "one"}
        status, made = y.api("POST", "/imports", body)
        assert status == 202
        y.wait_for(
            lambda: f"was killed by signal {signal.SIGKILL:d}" in y.server.log(), "the crash"
        )
        y.kill()
        y.environment.clear()
        y.again()
        y.wait_for(lambda: _state(y, made["id"]) == "served", "the import to be served", 60)
        assert y.versions("one") == [1]
        events = [event["kind"] for event in y.api("GET", "/events?limit=500")[1]["items"]]
        assert events.count("version.added") == events.count("model.deployed") == 1
