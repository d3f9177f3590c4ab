"""What counts as what, and what is told of it."""

import time

import numpy as np
import pytest

from backends.errors import ExecutionFailed
from schedulers.errors import Cancelled, DeadlineExceeded, QueueFull, ShutDown
from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.errors import InvalidRequest, NotReady
from server.routing.arm_counters import FEW_TAKEN, LOOKED_AT, MOST_TAKEN, ArmCounters
from server.routing.arm_counters_registry import AT_ONCE, ArmCountersRegistry
from server.routing.table import compile_table, targets_of
from support.routing import halves

FINE = np.ones(3, np.float32)


def answered(window: ArmCounters, output: np.ndarray = FINE) -> None:
    reply = Reply()
    window.follow(reply, time.monotonic_ns() - 2_000_000)
    reply.send(InferResponse("", "m", 1, {"y": output}))


def failed(window: ArmCounters, error: Exception) -> None:
    reply = Reply()
    window.follow(reply, time.monotonic_ns())
    reply.fail(error)


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ExecutionFailed("it crashed"), (1, 1)),
        (DeadlineExceeded("waited"), (1, 1)),
        (QueueFull("full"), (1, 1)),
        (NotReady("loading"), (1, 1)),
        (ShutDown("over"), (1, 1)),
        (InvalidRequest("no such input"), (0, 0)),
        (Cancelled(""), (0, 0)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_only_what_the_server_failed_counts(error: Exception, counts: tuple[int, int]) -> None:
    window = ArmCounters()
    failed(window, error)
    assert (window.requests, window.errors) == counts
    assert (window.in_flight, window.latency.n) == (0, 0)


def test_an_answer_counts_with_its_latency_when_it_ends() -> None:
    window = ArmCounters()
    reply = Reply()
    window.follow(reply, time.monotonic_ns() - 2_000_000)
    assert (window.in_flight, window.requests) == (1, 0)
    reply.send(InferResponse("", "m", 1, {"y": FINE}, last=False))
    assert window.requests == 0
    reply.close()
    assert (window.in_flight, window.requests, window.errors) == (0, 1, 0)
    assert window.latency.quantile(0.5) >= 0.0019


def test_a_reply_that_has_ended_before_it_is_followed_counts() -> None:
    reply = Reply()
    reply.send(InferResponse("", "m", 1, {"y": FINE}))
    window = ArmCounters()
    window.follow(reply, time.monotonic_ns())
    assert window.requests == 1
    assert reply.result().outputs["y"] is FINE


def test_outputs_are_looked_at_now_and_then() -> None:
    for output, expected in (
        (np.array([1, np.nan], np.float32), (2, 0)),
        (np.array([np.inf], np.float64), (2, 0)),
        (np.empty((0, 3), np.float32), (0, 2)),
        (np.array([1, 2]), (0, 0)),
        (np.array([1, -3e38], np.float32), (0, 0)),
        (np.array([1e308, 0], np.float64), (0, 0)),
        (np.array([6e4, 1], np.float16), (0, 0)),
        (np.array([1, np.nan], np.float16), (2, 0)),
        (np.array([[1, 2], [np.nan, 4]], np.float32).T, (2, 0)),
        (np.array([b"text"], np.object_), (0, 0)),
    ):
        window = ArmCounters()
        for _ in range(2 * LOOKED_AT):
            answered(window, output)
        assert (window.not_a_number, window.empty) == expected, output


def test_outputs_are_looked_at_however_often_the_counts_are_told() -> None:
    window = ArmCounters()
    for number in range(4 * LOOKED_AT):
        answered(window, np.array([np.nan], np.float32))
        if number % 5 == 0:
            window.totals()
    assert window.not_a_number == 4


@pytest.mark.parametrize("count", [0, 1, FEW_TAKEN, FEW_TAKEN + 1, MOST_TAKEN, 3 * MOST_TAKEN + 7])
def test_every_latency_is_counted_whether_few_or_many_are_sorted_at_once(count: int) -> None:
    window = ArmCounters()
    for _ in range(count):
        answered(window)
    assert (window.requests, window.in_flight) == (count, 0)
    told = window.totals()
    assert (told.counts.requests, told.latency.n, sum(window.latency.counts)) == (count,) * 3
    assert window.requests == count


def test_what_has_not_ended_is_in_flight_whatever_became_of_the_others() -> None:
    window, open_reply = ArmCounters(), Reply()
    window.follow(open_reply, time.monotonic_ns())
    answered(window)
    failed(window, ExecutionFailed("no"))
    failed(window, Cancelled(""))
    window.refused()
    assert (window.in_flight, window.requests, window.errors) == (1, 3, 2)
    open_reply.close()
    assert (window.in_flight, window.requests) == (0, 4)


def test_what_ends_without_counting_is_news_as_well() -> None:
    window = ArmCounters()
    failed(window, Cancelled(""))
    assert window.changed
    window.tell()
    assert not window.changed


def test_what_is_told_is_what_rollouts_read() -> None:
    window = ArmCounters()
    answered(window)
    failed(window, ExecutionFailed("no"))
    told = window.totals()
    assert (told.counts.requests, told.counts.errors, told.latency.n) == (2, 1, 1)


def test_only_news_is_told_and_now_and_then_everything() -> None:
    windows = ArmCountersRegistry()
    targets = targets_of(compile_table([halves(rollout="r1"), halves(name="calm")], {}))
    windows.use(targets)
    assert list(windows.snapshot(False)) == []
    silent = [[row.route, row.rollout, row.arm] for rows in windows.snapshot(True) for row in rows]
    assert silent == [["numbers", "r1", "stable"], ["numbers", "r1", "candidate"]]
    answered(windows.of(targets[2]))
    assert [[row.route for row in rows] for rows in windows.snapshot(False)] == [["calm"]]
    assert list(windows.snapshot(False)) == []
    assert sum(len(rows) for rows in windows.snapshot(True)) == 3


def test_counts_survive_a_change_of_the_table_and_are_told_in_small_pieces() -> None:
    windows = ArmCountersRegistry()
    table = compile_table([halves(name=f"r{n}") for n in range(AT_ONCE)], {})
    windows.use(targets_of(table))
    for target in targets_of(table):
        answered(windows.of(target))
    windows.use([])
    pieces = [len(rows) for rows in windows.snapshot(False)]
    assert pieces == [AT_ONCE, AT_ONCE]
    assert list(windows.snapshot(True)) == []  # nobody asks any more
    windows.use(targets_of(table))
    assert all(window.requests == 1 for _, window in windows.rows())
