"""Killed at random moments, alone or as one of two servers, nothing that git took is lost."""

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from control import crash
from support.control import fresh_url
from support.yard import Yard, write_identity, yard
from support.yard_load import (
    check_load,
    check_whole,
    eventually,
    head,
    inferring,
    kill_control,
    next_version,
    push_until_accepted,
    query,
    try_push,
)

SEED = 4
ROUNDS = 6
"""Of two moments: one for the control process, one for the server."""

LONGEST_S = 2.5
"""What a push takes here, and a little more."""


def first(y: Yard) -> Path:
    """A working copy whose `m` 1 the yard serves."""
    work = y.repository("vision")
    write_identity(work, "m", 1)
    y.commit(work, "version 1")
    y.push(work)
    y.wait_versions("m", 1)
    return work


class Pusher(threading.Thread):
    """Pushes version after version, each until git has it; `end` returns the last one's number."""

    def __init__(self, y: Yard, work: Path, number: int) -> None:
        super().__init__(daemon=True)
        self._y, self._work, self._number = y, work, number
        self._ending = threading.Event()
        self._failed: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                commit = next_version(self._y, self._work, "m", self._number + 1)
                push_until_accepted(self._y, self._work, commit, 120)
                self._number += 1
        except BaseException as error:  # noqa: BLE001 - raised again by `end`, in the test's thread
            self._failed.append(error)

    def end(self) -> int:
        self._ending.set()
        self.join(180)
        if self._failed:
            raise self._failed[0]
        return self._number


@pytest.mark.slow
def test_control_and_server_are_killed_at_random_moments(tmp_path: Path) -> None:
    drawn, pause = random.Random(SEED), threading.Event()
    with yard(tmp_path) as y:
        work = first(y)
        number = 1
        for _ in range(ROUNDS):
            pusher = Pusher(y, work, number)
            pusher.start()
            with inferring(y, "m") as load:
                pause.wait(drawn.uniform(0, LONGEST_S))
                kill_control(y)
            check_load(load)
            pause.wait(drawn.uniform(0, LONGEST_S))
            y.kill()
            y.start()
            number = pusher.end()
            check_whole(y, work)
            y.wait_versions("m", number, seconds=60)


def holds_lease(y: Yard) -> bool:
    """Whether this server is the one that deploys."""
    held = "SELECT server.id FROM lease JOIN server ON server.boot = lease.holder"
    own = json.loads((y.state / "server.json").read_text())["id"]
    return (own,) in query(y, f"{held} WHERE lease.name = 'deployer' AND lease.until > now()")


@contextmanager
def two(folder: Path, environment: dict[str, str] | None = None) -> Iterator[tuple[Yard, Yard]]:
    """Two servers on one PostgreSQL and one store; `environment` is the first one's."""
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with fresh_url("postgresql", folder) as url:
        shared = {"database": url, "store_dir": str(folder / "store")}
        with (
            yard(folder / "a", environment, **shared) as a,
            yard(folder / "b", None, **shared) as b,
        ):
            yield a, b


@pytest.mark.slow
def test_the_other_server_brings_a_dead_ones_push_into_service(tmp_path: Path) -> None:
    trigger = tmp_path / "crash"
    with two(tmp_path, {crash.VARIABLE: f"@{trigger}"}) as (a, b):
        work = first(a)
        b.wait_versions("m", 1)
        commit = next_version(a, work, "m", 2)
        trigger.write_text("push.refs_moved parent")
        with inferring(b, "m") as load:
            _, said = try_push(a, work)
            eventually(lambda: a.server.process.poll() is not None, said)
            assert head(a, work) == commit
            b.wait_versions("m", 2, seconds=90)
        check_load(load)
        check_whole(b, work, shared=True)
        a.start()
        a.wait_versions("m", 2, seconds=60)
        check_whole(a, work, shared=True)


@pytest.mark.slow
def test_a_push_is_settled_by_the_server_that_did_not_take_it(tmp_path: Path) -> None:
    """The one that holds the lease lives on; the one that took the push dies, and comes back."""
    trigger = tmp_path / "crash"
    with two(tmp_path, {crash.VARIABLE: f"@{trigger}"}) as (a, b):
        work = first(a)
        a.kill()
        b.wait_versions("m", 1)
        b.wait_for(lambda: holds_lease(b), "the lease", 60)
        a.start()
        for number, point in enumerate(("push.received", "push.refs_moved", "push.accepted"), 2):
            commit = next_version(a, work, "m", number)
            trigger.write_text(point)
            pid = a.control_pid()
            try_push(a, work)
            a.wait_for(lambda pid=pid: a.control_pid() not in (0, pid), "another", 60)
            a.wait_for(a.answers, "it to answer", 60)
            check_whole(b, work, shared=True)
            push_until_accepted(a, work, commit)
            for one in (a, b):
                one.wait_versions("m", number, seconds=60)


@pytest.mark.slow
def test_two_servers_agree_whatever_is_killed_of_one(tmp_path: Path) -> None:
    drawn, pause = random.Random(SEED), threading.Event()
    with two(tmp_path) as (a, b):
        work = first(a)
        number = 1
        b.wait_versions("m", 1)
        with inferring(b, "m") as load:
            for turn in range(6):
                pusher = Pusher(a, work, number)
                pusher.start()
                pause.wait(drawn.uniform(0, LONGEST_S))
                if turn % 2:
                    a.kill()
                    a.start()
                else:
                    os.kill(a.control_pid(), signal.SIGKILL)
                number = pusher.end()
                check_whole(b, work, shared=True, seconds=90)
                for one in (a, b):
                    one.wait_versions("m", number, seconds=90)
        check_load(load)
