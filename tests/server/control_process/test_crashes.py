"""Killed at every named transition of a push, the server makes it whole when it is back."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control import crash
from support.git_http import CLIENT
from support.yard import Yard, write_identity, yard
from support.yard_load import (
    check_load,
    check_whole,
    eventually,
    head,
    inferring,
    next_version,
    push_until_accepted,
    try_push,
    wait_for_another,
)

TRANSITIONS = tuple(name for name in crash.POINTS if name.startswith("push."))
BEFORE_AND_AFTER_GIT_HAS_IT = ("push.received", "push.refs_moved")

AT_ONCE = 4
"""Control processes that a gateway sees die before it makes long pauses."""


class Victim:
    """A yard that serves `m`, and dies once wherever it is told to."""

    def __init__(self, y: Yard, work: Path, trigger: Path) -> None:
        self.y, self.work, self.trigger = y, work, trigger
        self.number = 1
        self.deaths = 0

    def commit(self) -> str:
        self.number += 1
        return next_version(self.y, self.work, "m", self.number)

    def arm(self, words: str) -> None:
        fresh = self.trigger.with_suffix(".new")
        fresh.write_text(words)
        fresh.replace(self.trigger)

    def rest(self) -> None:
        """Start the gateway anew when it has seen so many deaths that it would make pauses."""
        self.deaths += 1
        if self.deaths > AT_ONCE:
            self.y.again()
            self.deaths = 1


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("crash")
    trigger = folder / "crash"
    with yard(folder, {crash.VARIABLE: f"@{trigger}"}) as y:
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        yield Victim(y, work, trigger)


@pytest.mark.parametrize(
    "transition",
    [
        pytest.param(name, marks=() if name in BEFORE_AND_AFTER_GIT_HAS_IT else pytest.mark.slow)
        for name in TRANSITIONS
    ],
)
def test_a_push_whose_control_process_is_killed_ends_whole(victim: Victim, transition: str) -> None:
    y, work = victim.y, victim.work
    victim.rest()
    commit = victim.commit()
    victim.arm(transition)
    pid = y.control_pid()
    with inferring(y, "m") as load:
        well, said = try_push(y, work)
        wait_for_another(y, pid)
        assert not victim.trigger.exists(), said
        if head(y, work) == commit:
            assert not transition.endswith("received")
        else:
            assert not well, said
            check_whole(y, work)  # the push that was cut off is given up
            push_until_accepted(y, work, commit)
        y.wait_versions("m", victim.number, seconds=60)
        check_whole(y, work)
    check_load(load)


def test_a_pusher_who_goes_away_loses_nothing_that_git_took(victim: Victim) -> None:
    """Killed while it waits for the end: no hook tells any more that the ref has moved."""
    y, work = victim.y, victim.work
    commit = victim.commit()
    command = ["git", "push", "-q", y.url("vision").replace("//", f"//ada:{y.token}@"), "main"]
    with subprocess.Popen(command, cwd=work, env=CLIENT, start_new_session=True) as pushing:
        y.wait_for(lambda: head(y, work) == commit, "git to move the ref", 60)
        os.killpg(pushing.pid, signal.SIGKILL)
    y.wait_versions("m", victim.number, seconds=60)
    check_whole(y, work)


def test_of_pushes_that_race_one_is_served_and_none_is_left_half_way(victim: Victim) -> None:
    y, work = victim.y, victim.work
    base = y.git(work, "rev-parse", "HEAD").strip()
    commits = []
    for racer in range(3):
        y.git(work, "checkout", "-q", "-B", f"racer-{racer}", base)
        commits.append(victim.commit())
    with ThreadPoolExecutor(3) as pool:
        pushes = [f"+{commit}:refs/heads/main" for commit in commits]
        said = list(pool.map(lambda ref: try_push(y, work, ref), pushes))
    won = head(y, work)
    assert won in commits, said
    y.git(work, "checkout", "-q", "-B", "main", won)
    check_whole(y, work)
    number = victim.number - (len(commits) - 1 - commits.index(won))
    y.wait_versions("m", number, seconds=60)


@pytest.mark.slow
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_push_whose_server_is_killed_ends_whole(victim: Victim, transition: str) -> None:
    y, work = victim.y, victim.work
    commit = victim.commit()
    victim.arm(f"{transition} parent")
    well, said = try_push(y, work)
    eventually(lambda: y.server.process.poll() is not None, said)
    y.start()
    victim.deaths = 0
    if head(y, work) != commit:
        assert not well, said
        push_until_accepted(y, work, commit)
    y.wait_versions("m", victim.number, seconds=60)
    check_whole(y, work)
