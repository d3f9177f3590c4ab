"""Backups over the API: streamed whole, or broken off for everybody to see."""

import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from control.errors import Conflict
from control.services import BACKUPS
from control.sql.database import Database
from support.admin import Api, api


def test_a_backup_is_streamed(running: Api) -> None:
    found = running.local("POST", "/backup")
    assert (found.status, found.body) == (200, b"a tar")
    assert found.headers["content-type"] == "application/x-tar"


def test_a_third_backup_at_once_is_asked_to_come_back(sqlite: Database, tmp_path: Path) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def archive(out: IO[bytes]) -> None:
        begun.release()
        assert go_on.wait(60)
        out.write(b"a tar")

    with api(sqlite, tmp_path, archive=archive) as running, ThreadPoolExecutor(2) as others:
        first = [others.submit(running.local, "POST", "/backup") for _ in range(BACKUPS)]
        for _ in first:
            assert begun.acquire(timeout=60)
        third = running.local("POST", "/backup")
        go_on.set()
        assert [one.result(60).body for one in first] == [b"a tar"] * BACKUPS
        assert running.local("POST", "/backup").body == b"a tar"

    assert (third.status, third.code) == (429, "too_many")
    assert third.headers["retry-after"] == "30"


@pytest.mark.parametrize("size", [0, 3 * 2**20])
def test_a_backup_that_breaks_off_is_never_taken_for_a_whole_one(
    sqlite: Database, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    def archive(out: IO[bytes]) -> None:
        out.write(b"x" * size)
        out.flush()
        raise Conflict("the snapshot is missing")

    with api(sqlite, tmp_path, archive=archive) as running:
        if size == 0:
            found = running.local("POST", "/backup")
            assert (found.status, found.message) == (409, "the snapshot is missing")
        else:
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                running.local("POST", "/backup")
    assert size == 0 or "the snapshot is missing" in caplog.text
