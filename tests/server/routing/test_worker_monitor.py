"""What rollouts hear of a version's workers: every death once, and how much they hold."""

import os
from typing import Any

from server.routing.arm_counters_registry import ArmCountersRegistry
from server.routing.table import compile_table, targets_of
from support.routing import halves


class Worker:
    """An instance with a process of its own; here it is ours."""

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths
        self.pid = os.getpid()


class Thread:
    """An instance without one."""


def windows(loaded: dict[int, list[Any]], rollout: str = "r1") -> ArmCountersRegistry:
    made = ArmCountersRegistry(lambda _, version: loaded.get(version, ()))
    made.use(targets_of(compile_table([halves(rollout=rollout)], {})))
    return made


def told(made: ArmCountersRegistry, everything: bool = False) -> dict[str, list[int]]:
    """Arm → deaths and resident bytes."""
    return {
        row.arm: [row.deaths, row.resident_bytes]
        for rows in made.snapshot(everything)
        for row in rows
    }


def test_only_deaths_since_the_rollout_began_count_and_they_are_news() -> None:
    old = Worker(deaths=3)
    loaded: dict[int, list[Any]] = {1: [old]}
    made = windows(loaded)
    loaded[2] = [Worker()]
    assert {arm: row[0] for arm, row in told(made, True).items()} == {"stable": 0, "candidate": 0}
    loaded[2][0].deaths = 2
    assert [row[0] for row in told(made).values()] == [2]
    assert told(made) == {}


def test_what_was_counted_stays_when_the_version_is_loaded_anew() -> None:
    loaded: dict[int, list[Any]] = {2: [Worker()]}
    made = windows(loaded)
    loaded[2][0].deaths = 1
    told(made)
    loaded[2] = [Worker(deaths=1), Worker()]
    assert told(made)["candidate"][0] == 2
    loaded[2] = []
    assert told(made, True)["candidate"][0] == 2


def test_a_worker_s_memory_is_told_and_that_of_a_thread_is_not_known() -> None:
    found = told(windows({1: [Thread()], 2: [Worker()]}), True)
    assert found["stable"] == [0, 0]
    assert found["candidate"][1] > 10 * 2**20


def test_nobody_looks_at_the_workers_of_a_route_that_no_rollout_moves() -> None:
    made = windows({1: [Worker()], 2: [Worker()]}, rollout="")
    assert told(made, True) == {}
