"""Killed at every named move of a rollout and at random moments, no weight changes by itself."""

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from control import crash
from support.rollouts_yard import (
    check_weights,
    history,
    insist,
    serve_versions,
    started,
    until,
    weight_kept,
)
from support.yard import Yard, yard
from support.yard_load import Load, eventually, inferring, wait_for_another

pytestmark = pytest.mark.slow

MOVES = (
    *("start", "prewarm", "mirror", "step", "pause", "resume", "abort", "degrade", "retry"),
    *("supersede", "promote", "healthy"),
)
"""In the order of the story that is told here."""

FIRST = [
    *[("start", 0), ("prewarm", 0), ("mirror", 0), ("step", 25), ("pause", 25), ("resume", 25)],
    *[("abort", 0), ("degrade", 0), ("retry", 0), ("prewarm", 0), ("mirror", 0), ("step", 25)],
    ("supersede", 0),
]
SECOND = [
    *[("start", 0), ("prewarm", 0), ("mirror", 0), ("step", 25), ("step", 50)],
    *[("promote", 100), ("healthy", 100)],
]
STAYS = {"mirror": 100, "mirror_hold": 0, "mirror_sample": 3, "steps": "25", "hold": 600}
GOES = {**STAYS, "steps": "25,50", "hold": 0}

SEED, MOMENTS, LONGEST_S = 5, 12, 1.5
STEPS = [10 * number for number in range(1, 10)]
LADDER = {"mirror": 0, "steps": ",".join(map(str, STEPS)), "hold": "0.5s"}


class Deaths:
    """Kills the control process and the whole server in turns, at one move after the other."""

    def __init__(self, y: Yard, trigger: Path, load: Load, server: bool) -> None:
        self.y, self.trigger, self.load, self.server = y, trigger, load, server

    def arm(self, move: str) -> None:
        fresh = self.trigger.with_suffix(".new")
        fresh.write_text(f"rollout.{move} parent" if self.server else f"rollout.{move}")
        fresh.replace(self.trigger)

    def wait(self) -> None:
        """It has died; whoever infers does not notice that of a control process."""
        eventually(lambda: not self.trigger.exists(), f"{self.trigger} to be taken", 120)
        if self.server:
            eventually(lambda: self.y.server.process.poll() is not None, "the server to die")
        else:
            assert self.load.failures == []

    def revive(self) -> None:
        if self.server:
            self.y.start(wait=False)
            self.y.server.wait_ready()
            self.load.failures.clear()
        self.server = not self.server


@pytest.mark.parametrize("server_first", [False, True], ids=["control", "server"])
def test_a_death_at_a_move_neither_loses_nor_repeats_it(tmp_path: Path, server_first: bool) -> None:
    """Both runs together kill the control process and the server at each move."""
    assert {f"rollout.{move}" for move in MOVES} == {
        point for point in crash.POINTS if point.startswith("rollout.")
    }
    trigger = tmp_path / "crash"
    with yard(tmp_path, {crash.VARIABLE: f"@{trigger}"}) as y:
        serve_versions(y, 1, 2, 3)
        with inferring(y, "m") as load:
            first, second = tell_the_story(y, Deaths(y, trigger, load, server_first))
        assert history(y, first) == FIRST
        assert history(y, second) == SECOND


def tell_the_story(y: Yard, deaths: Deaths) -> tuple[str, str]:
    """Two rollouts with every move there is, and a death at the first of each kind; their ids."""
    names: dict[int, str] = {}
    asking: list[threading.Thread] = []

    def begin(candidate: int, plan: dict[str, object]) -> Callable[[], object]:
        return lambda: names.__setitem__(candidate, started(y, candidate, **plan))

    def tell(word: str) -> Callable[[], object]:
        return lambda: insist(y, f"/rollouts/{names[2]}/{word}")

    asked = {"start": begin(2, STAYS), "supersede": begin(3, GOES)}
    asked |= {word: tell(word) for word in ("pause", "resume", "abort", "retry")}
    before = {"pause": "step", "resume": "paused", "abort": "step", "retry": "degraded"}
    for number, move in enumerate(MOVES):
        if move in asked:
            for one in asking:
                one.join(120)
            if number:
                until(y, names[2], before.get(move, "step"))
            deaths.arm(move)
            asking.append(threading.Thread(target=asked[move], daemon=True))
            asking[-1].start()
        deaths.wait()
        following = MOVES[number + 1 : number + 2]
        server = deaths.server
        deaths.server = not server
        if following and following[0] not in asked:
            deaths.arm(following[0])  # before anybody is there again who could make it
        deaths.server = server
        deaths.revive()
    for one in asking:
        one.join(120)
    until(y, names[3], "healthy")
    return names[2], names[3]


def test_deaths_at_random_moments_change_no_weight(tmp_path: Path) -> None:
    drawn, pause = random.Random(SEED), threading.Event()
    with yard(tmp_path) as y:
        serve_versions(y, 1, 2)
        name, candidate, ended = started(y, 2, **LADDER), 2, []
        with inferring(y, "m") as load:
            for number in range(MOMENTS):
                pause.wait(drawn.uniform(0, LONGEST_S))
                kept = die(y, name, load, server=number % 3 == 2)
                view = until(y, name, "pending", "prewarm", "step", "promoting", "healthy")
                assert view["weight"] >= kept, view
                check_weights(y, name)
                if view["phase"] == "healthy":
                    ended.append(name)
                    candidate = 3 - candidate
                    name = started(y, candidate, **LADDER)
            until(y, name, "healthy")
        for one in (*ended, name):
            assert history(y, one) == [
                *[("start", 0), ("prewarm", 0), *(("step", weight) for weight in STEPS)],
                *[("promote", 100), ("healthy", 100)],
            ]


def die(y: Yard, name: str, load: Load, server: bool) -> float:
    """SIGKILL, and all that is dead is back; the weight that the rows had meanwhile."""
    if server:
        y.kill()
        kept = weight_kept(y, name)
        y.start()
        load.failures.clear()
        return kept
    pid = y.control_pid()
    os.kill(pid, signal.SIGKILL)
    kept = weight_kept(y, name)
    wait_for_another(y, pid)
    assert load.failures == []
    return kept
