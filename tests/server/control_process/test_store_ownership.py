"""The store on the disk and the database belong together, whenever the process dies."""

import asyncio
import json
from pathlib import Path

import pytest

from server.control_process import program as composition
from server.control_process.program import ControlServer
from server.control_process.store_ownership import CannotControl, check_store
from server.settings.table import Settings


def settings(folder: Path) -> Settings:
    return Settings(state_dir=folder / "state", admin_port=0)


def test_a_store_that_has_no_name_yet_gets_the_databases(tmp_path: Path) -> None:
    check_store("one", settings(tmp_path))
    check_store("one", settings(tmp_path))
    path = settings(tmp_path).store_folder / "store.json"
    assert json.loads(path.read_text()) == {"id": "one"}
    assert [one.name for one in path.parent.iterdir()] == ["store.json"]


def test_a_store_of_another_database_is_refused_by_name(tmp_path: Path) -> None:
    check_store("one", settings(tmp_path))
    with pytest.raises(CannotControl, match="it is one, and this database's is two"):
        check_store("two", settings(tmp_path))


def test_a_start_that_dies_after_marking_the_store_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(tx: object) -> None:
        raise MemoryError

    async def start() -> None:
        stopping = asyncio.Event()
        server = ControlServer(settings(tmp_path), "a-server", stopping)
        asyncio.get_running_loop().call_later(0.5, stopping.set)
        await server.run()

    with monkeypatch.context() as broken:
        broken.setattr(composition, "first_link_code", die)
        with pytest.raises(MemoryError):
            asyncio.run(start())
    asyncio.run(start())
