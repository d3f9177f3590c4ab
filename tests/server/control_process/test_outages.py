"""The database stops answering: inference does not notice, pushes are told, all goes on later."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.control import fresh_url
from support.severed import severable
from support.yard import Yard, write_identity, yard
from support.yard_load import (
    check_load,
    check_whole,
    inferring,
    next_version,
    push_until_accepted,
    try_push,
)

BRIEF_S, LONG_S = 1.0, 12.0
"""Long is more than SQLite waits for a lock (10 s)."""

HANGING_S = 30.0
"""More than PostgreSQL has for an answer (25 s)."""


GONE = ("does not answer", "went away", "is busy: ")

Outage = Callable[[], None]


@contextmanager
def serving(folder: Path, **flags: object) -> Iterator[tuple[Yard, Path]]:
    """A yard that serves `m` 1, and its working copy."""
    with yard(folder, None, **flags) as y:
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        yield y, work


def endure(y: Yard, work: Path, seconds: float, begin: Outage, end: Outage) -> None:
    """Infer and push through an outage of at least `seconds`, then push once more."""
    with inferring(y, "m", clients=2) as load:
        commit = next_version(y, work, "m", 2)
        begin()
        until = time.monotonic() + seconds
        while True:
            accepted, said = try_push(y, work)
            assert not accepted, said
            assert "remote: " in said, said
            assert any(words in said for words in GONE), said
            if time.monotonic() > until:
                break
        assert y.versions("m") == [1]
        end()
        push_until_accepted(y, work, commit)
        y.wait_versions("m", 2, seconds=60)
        check_whole(y, work)
    check_load(load)


@pytest.mark.slow
def test_postgresql_hangs_and_inference_does_not_notice(tmp_path: Path) -> None:
    with (
        fresh_url("postgresql", tmp_path) as url,
        severable(url) as way,
        serving(tmp_path, database=way.url) as (y, work),
    ):
        endure(y, work, HANGING_S, way.freeze, way.thaw)


@pytest.mark.parametrize("seconds", [BRIEF_S, pytest.param(LONG_S, marks=pytest.mark.slow)])
def test_postgresql_is_gone_and_inference_does_not_notice(tmp_path: Path, seconds: float) -> None:
    with (
        fresh_url("postgresql", tmp_path) as url,
        severable(url) as way,
        serving(tmp_path, database=way.url) as (y, work),
    ):
        endure(y, work, seconds, way.cut, way.mend)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [BRIEF_S, LONG_S])
def test_sqlite_is_held_and_inference_does_not_notice(tmp_path: Path, seconds: float) -> None:
    with serving(tmp_path) as (y, work):
        path = y.state / "modelyard.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as holder:
            endure(
                y,
                work,
                seconds,
                lambda: holder.execute("BEGIN EXCLUSIVE").close(),
                lambda: holder.execute("ROLLBACK").close(),
            )


@pytest.mark.slow
def test_a_control_process_that_starts_in_an_outage_waits_for_its_end(tmp_path: Path) -> None:
    with (
        fresh_url("postgresql", tmp_path) as url,
        severable(url) as way,
        serving(tmp_path, database=way.url) as (y, work),
    ):
        with inferring(y, "m") as load:
            way.cut()
            os.kill(y.control_pid(), signal.SIGKILL)
            y.wait_for(lambda: "retrying every" in y.server.log(), "it to wait", 60)
            pid = y.control_pid()
            way.mend()
            y.wait_for(y.answers, "it to go on", 60)
            assert y.control_pid() == pid
            push_until_accepted(y, work, next_version(y, work, "m", 2))
            y.wait_versions("m", 2, seconds=60)
            check_whole(y, work)
        check_load(load)


@pytest.mark.slow
def test_pushes_go_on_through_a_database_that_comes_and_goes(tmp_path: Path) -> None:
    with (
        fresh_url("postgresql", tmp_path) as url,
        severable(url) as way,
        serving(tmp_path, database=way.url) as (y, work),
        inferring(y, "m") as load,
    ):
        ending = threading.Event()

        def come_and_go() -> None:
            stays_s = 1.5
            while not ending.wait(stays_s):
                stays_s += 0.1  # or a slow machine's push would never get through
                way.cut()
                ending.wait(0.7)
                way.mend()

        breaking = threading.Thread(target=come_and_go, daemon=True)
        breaking.start()
        try:
            for number in range(2, 10):
                push_until_accepted(y, work, next_version(y, work, "m", number), 120)
        finally:
            ending.set()
            breaking.join(60)
        y.wait_versions("m", 9, seconds=60)
        check_whole(y, work)
    check_load(load)
