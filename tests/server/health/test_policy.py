"""Whether a version answers as it should, from what was counted in recent windows."""

from collections.abc import Iterable

import pytest

from backends.process.health.crash_history import CrashHistory
from control.series.points import pack_latencies
from control.statistics.histogram import histogram_of
from server.health.policy import (
    HOLD_S,
    AnswerWindow,
    HealthBounds,
    HealthFinding,
    VersionFacts,
    judge,
)

NOW = 1_000_020
BOUNDS = HealthBounds()
NOTHING = VersionFacts()


def window(ago: int, succeeded: int = 0, failed: int = 0, refused: int = 0) -> AnswerWindow:
    """That ended `ago` seconds before NOW."""
    return AnswerWindow(NOW - ago - 10, succeeded, failed, refused)


def found(
    windows: Iterable[AnswerWindow],
    before: dict[str, HealthFinding] | None = None,
    facts: VersionFacts = NOTHING,
    now: int = NOW,
    bounds: HealthBounds = BOUNDS,
) -> dict[str, HealthFinding]:
    return judge(list(windows), facts, before or {}, bounds, now)


@pytest.mark.parametrize(
    ("windows", "codes"),
    [
        ([window(0, failed=61)], ["errors"]),
        ([window(0, succeeded=61)], []),
        ([window(0, succeeded=90, failed=10)], ["errors"]),
        ([window(0, succeeded=91, failed=9)], []),
        ([window(0, failed=9)], []),  # too few to tell
        ([window(400, failed=5), window(0, failed=5)], ["errors"]),  # of a longer time, enough
        ([window(800, failed=9), window(0, succeeded=1)], ["errors"]),
        ([window(2000, failed=9), window(0, failed=1)], []),  # longer ago than it looks
        ([window(300, failed=60), window(0, succeeded=20)], []),  # it has passed
        ([window(0, succeeded=6, failed=4)], []),  # four may be chance
        ([window(0, succeeded=50, refused=20)], ["queue_full"]),
        ([window(0, succeeded=10, failed=10, refused=10)], ["errors", "queue_full"]),
    ],
)
def test_enough_failures_and_refusals_of_the_last_minute_are_found(
    windows: list[AnswerWindow], codes: list[str]
) -> None:
    assert list(found(windows)) == codes


def test_a_finding_says_how_many_of_how_many_since_the_first_failure() -> None:
    (finding,) = found([window(20, succeeded=10), window(10, failed=60), window(0, 0, 1)]).values()
    assert finding.reason == (
        "61 of 71 requests failed from 13:46:30 UTC to 13:47:00 UTC, 85.9 %; the bound is 10 %"
    )
    assert (finding.since, finding.seen, finding.worded) == (NOW - 20, NOW, NOW)


def begun(code: str, ago: int = 300) -> dict[str, HealthFinding]:
    at = NOW - ago
    return {code: HealthFinding(at, "as it was", at, at)}


@pytest.mark.parametrize(
    ("share", "lasts"), [(100, True), (60, True), (50, True), (49, False), (0, False)]
)
def test_a_finding_ends_well_below_where_it_began(share: int, lasts: bool) -> None:
    windows = [window(0, succeeded=1000 - share, failed=share)]
    assert ("errors" in found(windows, begun("errors"))) is lasts


def test_a_finding_that_lasts_keeps_since_when_and_is_worded_anew_each_minute() -> None:
    windows = [window(0, failed=500)]
    (old,) = found(windows, begun("errors", ago=300)).values()
    assert (old.since, old.worded) == (NOW - 300, NOW)
    assert old.reason.startswith("500 of 500 requests failed")
    (fresh,) = found(windows, begun("errors", ago=30)).values()
    assert (fresh.reason, fresh.worded, fresh.seen) == ("as it was", NOW - 30, NOW)


def test_without_requests_a_finding_stays_for_an_hour() -> None:
    before = begun("errors", ago=0)
    assert found([], before, now=NOW + HOLD_S) == before
    assert found([], before, now=NOW + HOLD_S + 1) == {}
    assert list(found([window(0, succeeded=3)], begun("errors"))) == ["errors"]
    assert found([window(0, succeeded=10)], begun("errors")) == {}


def test_a_bound_that_is_no_bound_finds_nothing() -> None:
    bounds = HealthBounds(0.0, 10, 0.0, 0.0, 0)
    facts = VersionFacts(0.001, CrashHistory(9, NOW - 60, NOW, "exited"))
    slow = [timed(0, 500, 1.0, queue_s=9.0)._replace(failed=500, refused=500)]
    assert found(slow, facts=facts, bounds=bounds) == {}


def timed(
    ago: int, succeeded: int, latency_s: float, queue_s: float = 0.0, compute_s: float = 0.01
) -> AnswerWindow:
    return AnswerWindow(
        NOW - ago - 10,
        succeeded,
        queue_us=int(queue_s * 1e6) * succeeded,
        compute_us=int(compute_s * 1e6) * succeeded,
        latency=pack_latencies(histogram_of([latency_s] * succeeded)),
    )


@pytest.mark.parametrize(
    ("latency_s", "usual_s", "is_slow", "stays_slow"),
    [
        (0.100, 0.04, True, True),
        (0.070, 0.04, False, True),
        (0.050, 0.04, False, False),
        (0.004, 0.001, False, True),  # four times as slow, which nobody notices
        (0.100, 0.0, False, True),  # nothing is known of its last day
    ],
)
def test_a_version_is_slow_against_its_own_last_day(
    latency_s: float, usual_s: float, is_slow: bool, stays_slow: bool
) -> None:
    windows, facts = [timed(0, 200, latency_s)], VersionFacts(usual_s)
    assert ("slow" in found(windows, facts=facts)) is is_slow
    assert ("slow" in found(windows, begun("slow"), facts)) is stays_slow


def test_latency_is_judged_once_a_minute_and_a_finding_stays_meanwhile() -> None:
    windows, facts = [timed(0, 200, 0.1)], VersionFacts(0.04)
    assert found(windows, facts=facts, now=NOW + 10) == {}
    assert found(windows, begun("slow"), facts, now=NOW + 10) == begun("slow")


def test_a_slow_version_says_how_much_slower() -> None:
    windows = [timed(100, 60, 0.1), timed(0, 60, 0.1)]
    (finding,) = found(windows, facts=VersionFacts(0.04)).values()
    assert finding.reason.startswith("p95 102 ms over 120 requests from 13:45:10 UTC to 13:47:00")
    assert finding.reason.endswith(", 2.5 times the 40 ms of its last day")
    assert found([timed(0, 99, 0.1)], facts=VersionFacts(0.04)) == {}


@pytest.mark.parametrize(
    ("queue_s", "compute_s", "delay_s", "starved"),
    [
        (0.5, 0.05, 0.0, True),
        (0.5, 0.3, 0.0, False),  # it computes nearly as long
        (0.09, 0.001, 0.0, False),  # nobody notices
        (0.5, 0.05, 0.3, False),  # its config lets batches form so long
    ],
)
def test_a_queue_is_starved_when_waiting_is_most_of_the_time(
    queue_s: float, compute_s: float, delay_s: float, starved: bool
) -> None:
    windows = [timed(0, 50, queue_s + compute_s, queue_s, compute_s)]
    assert ("queue_time" in found(windows, facts=VersionFacts(batch_delay_s=delay_s))) is starved


def test_a_starved_queue_says_how_long_requests_wait() -> None:
    (finding,) = found([timed(0, 50, 0.55, 0.5, 0.05)]).values()
    assert finding.reason == (
        "50 requests from 13:46:50 UTC to 13:47:00 UTC waited 500 ms on average to be computed in "
        "50 ms"
    )


@pytest.mark.parametrize(
    ("deaths", "last_ago", "looping"), [(3, 60, True), (2, 60, False), (9, 601, False)]
)
def test_workers_that_die_one_after_the_other_are_a_crash_loop(
    deaths: int, last_ago: int, looping: bool
) -> None:
    crashes = CrashHistory(deaths, NOW - 900, NOW - last_ago, "exited with status 3")
    assert ("crash_loop" in found([], facts=VersionFacts(crashes=crashes))) is looping


def test_a_crash_loop_is_told_before_what_it_makes_fail() -> None:
    crashes = CrashHistory(4, NOW - 100, NOW - 5, "exited with status 3")
    both = found([window(0, failed=50)], facts=VersionFacts(crashes=crashes))
    assert list(both) == ["crash_loop", "errors"]
    assert both["crash_loop"].since == NOW - 100
    assert both["crash_loop"].reason == (
        "4 crashes of its workers since 13:45:20 UTC, the last at 13:46:55 UTC: it exited with "
        "status 3"
    )
