"""The page of a version as the server has it loaded, also of one that nobody pushed."""

from pathlib import Path

import pytest
from msgspec import convert

from admin_ui.pages.loaded_version import marked_config
from control import loads
from control.gateways.link import GatewayUnreachable
from control.gateways.queries import (
    GatewayInstances,
    LoadedQuery,
    LoadedVersions,
    Query,
    RunningQuery,
    RunningVersion,
)
from control.sql.database import SYSTEM, Database
from support.admin import Api
from support.console import console_over, person

WRITTEN = 'name: "talker"\nbackend: "llm"\n'
RUNNING = {
    "model": "talker", "version": 3, "backend": "llm", "devices": ["cpu"], "instances": 2,
    "ready": 1, "pids": [7, 8], "sandbox": "landlock", "succeeded": 1200, "failed": 3,
    "load_s": 1.5, "sampling": {"temperature": 0.7, "top_k": 20}, "deaths": 4,
    "resident_bytes": 3 * 2**20, "pending": 0, "inflight": 0,
    "load_phases": [
        {"name": "start", "seconds": 1.25, "bytes": 0},
        {"name": "weights", "seconds": 0.25, "bytes": 2**20},
    ],
}  # fmt: skip
LOADED = {
    "model": "talker", "version": 3,
    "config": WRITTEN + "max_batch_size: 8\nmodel_transaction_policy { decoupled: true }\n",
    "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [-1, 16]}],
    "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [-1, 1]}],
    "language": {"context": "2,048 tokens", "precision": "int8", "chat template": "default"},
}  # fmt: skip


async def _gone(_query: Query) -> LoadedVersions:
    raise GatewayUnreachable("the gateway does not answer; try again")


def page_of(
    sqlite: Database, tmp_path: Path, folder: Path | None, loaded: bool = True
) -> tuple[str, int]:
    """The page of version 3 of talker, which nobody pushed."""

    async def ask(query: Query) -> GatewayInstances | LoadedVersions:
        if isinstance(query, RunningQuery):
            rows = [RUNNING, {**RUNNING, "model": "other", "sampling": {"top_p": 0.123456789}}]
            wanted = [one for one in rows if query.model in ("", one["model"])]
            return GatewayInstances(1, 1, 1, (), convert(wanted, tuple[RunningVersion, ...]))
        if query == LoadedQuery("talker"):
            one = {**LOADED, "folder": str(folder) if folder else ""}
            return convert({"items": [one]}, LoadedVersions)
        return await _gone(query)

    with console_over(sqlite, tmp_path, ask_gateway=ask if loaded else _gone) as running:
        with running.database.change(SYSTEM) as tx:
            loads.record(tx, "server1", [("talker", 3, "READY", "")])
        found = person(running, "viewer", "vera").get("/models/talker/versions/3")
    return found.text, found.status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "talker"
    (home / "3").mkdir(parents=True)
    (home / "2").mkdir()
    (home / "config.pbtxt").write_text(WRITTEN)
    (home / "3" / "weights").write_text("abc")
    (home / "2" / "weights").write_text("of another version")
    return home


def test_a_folders_version_has_a_page_with_all_that_is_loaded(
    sqlite: Database, tmp_path: Path, folder: Path
) -> None:
    shown, status = page_of(sqlite, tmp_path, folder)
    assert status == 200
    assert "not pushed: no commit" in shown
    assert "1 of 2 ready, on cpu; 4 worker crashes" in shown
    assert "3.0 MiB in 2 worker processes, sandbox: landlock" in shown
    assert '<th scope="row">text_input</th><td class="mono">BYTES</td>' in shown
    assert '<td class="mono">[-1, 16]</td>' in shown
    assert '<dt>temperature</dt><dd class="mono">0.7</dd>' in shown
    assert "0.123456789" not in shown
    assert "start 1.25 s, weights 250 ms (1.0 MiB)" in shown


def test_what_the_server_completed_in_the_config_is_marked(
    sqlite: Database, tmp_path: Path, folder: Path
) -> None:
    shown, _ = page_of(sqlite, tmp_path, folder)
    assert "<ins>max_batch_size: 8</ins>" in shown
    assert "<ins>backend" not in shown


def test_its_files_have_sizes_and_digests_and_those_of_other_versions_are_left_out(
    sqlite: Database, tmp_path: Path, folder: Path
) -> None:
    shown, _ = page_of(sqlite, tmp_path, folder)
    assert '<td class="mono">3/weights</td><td class="number">3 B</td>' in shown
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" in shown
    assert "2/weights" not in shown


def test_a_language_model_says_what_it_serves_with_and_how_it_is_talked_to(
    sqlite: Database, tmp_path: Path, folder: Path
) -> None:
    shown, _ = page_of(sqlite, tmp_path, folder)
    assert "<dt>context</dt><dd>2,048 tokens</dd>" in shown
    assert "/v2/models/talker/versions/3/generate" in shown
    assert "from openai import OpenAI" in shown


def test_without_its_gateway_the_page_says_what_is_stored(sqlite: Database, tmp_path: Path) -> None:
    shown, status = page_of(sqlite, tmp_path, None, loaded=False)
    assert status == 200
    assert "this server has not loaded it" in shown


def test_a_version_that_nobody_knows_is_not_found(night: Api) -> None:
    for number in ("99", "x"):
        found = person(night, "viewer", f"v{number}").get(f"/models/digits/versions/{number}")
        assert found.status in (400, 404, 422), found.text[-500:]


def test_a_config_that_is_not_there_is_completed_in_whole() -> None:
    marked = marked_config("", 'name: "m"\n')
    assert marked == [("ins", 'name: "m"')]


def test_a_config_that_cannot_be_read_marks_all_and_hides_nothing() -> None:
    assert [line for _, line in marked_config("{", "a: 1\nb: 2")] == ["a: 1", "b: 2"]
