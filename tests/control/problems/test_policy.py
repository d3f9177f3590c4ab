"""What is wrong now: decided from rows of the database and what the gateway tells."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from control.gateways.queries import VersionCrashes
from control.health import of_load
from control.problems.policy import KilledRoute, NotInForce, ProblemFacts, problems
from control.problems.problem import Problem
from control.views import HealthView, LoadView, PushView, ServerView

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
AT = NOW - timedelta(minutes=3)


def server(name: str = "s1", alive: bool = True) -> ServerView:
    return ServerView(name, "1.0", "http://here", AT, AT, alive)


def load(
    state: str,
    version: int = 1,
    server: str = "s1",
    reason: str | None = None,
    model: str = "digits",
) -> LoadView:
    why = ("cut short" if state == "FAILED" else "") if reason is None else reason
    judged = of_load(state, why, 0.0)
    health = HealthView(judged.state, judged.code, why, AT)
    return LoadView(server, "digits", version, state, why, AT, health)


def unwell(state: str, code: str, reason: str, model: str = "digits", server: str = "s1",
           loaded: str = "READY") -> LoadView:  # fmt: skip
    """A version that is loaded and not well for half an hour."""
    health = HealthView(state, code, reason, NOW - timedelta(minutes=30))
    return LoadView(server, model, 1, loaded, "", AT, health)


def push(state: str, ref: str = "main", at: datetime = AT) -> PushView:
    facts = {
        "id": f"{state}{ref}", "repository": "vision", "ref": ref, "state": state,
        "finished_at": at, "received_at": at, "reason": "", "report": "one\ntwo", "pusher": "ada",
    }  # fmt: skip
    return SimpleNamespace(**facts)  # type: ignore[return-value]


def rollout(phase: str, at: datetime = AT) -> Any:
    return SimpleNamespace(
        id=f"{phase}1", name="digits", candidate=3, reason="too slow", by="ada", phase=phase,
        finished_at=at, updated_at=at,
    )  # fmt: skip


ALIVE = (server(),)


def found(*loads: LoadView, alive: Any = ALIVE, **more: Any) -> list[Problem]:
    return problems(ProblemFacts(loads, alive, more.pop("brought", {}), **more), NOW)


def said(told: list[Problem]) -> list[str]:
    return [f"{one.subject} {one.verb.one}" + (f" on {one.on}" if one.on else "") for one in told]


def test_nothing_is_wrong_where_all_is_ready() -> None:
    assert found(load("READY"), load("LOADING", 2)) == []


def test_a_version_that_failed_is_told_instead_of_its_model_with_who_brought_it() -> None:
    (told,) = found(load("FAILED"), load("FAILED", 0), brought={"digits": "ada"})
    assert said([told]) == ["digits version 1 failed on s1"]
    assert (told.why, told.by, told.page) == ("cut short", "ada", "/models/digits")


def test_a_reload_that_failed_is_told_while_the_version_serves_on() -> None:
    (told,) = found(load("READY", reason="serving what was loaded before"), load("READY", 2))
    assert said([told]) == ["digits version 1 could not be reloaded on s1"]


def test_a_model_whose_folder_cannot_be_followed_is_told_while_it_serves_on() -> None:
    gone = load("FAILED", 0, reason="the folder has turned empty")
    assert said(found(gone, load("READY"))) == ["digits keeps what it serves on s1"]
    assert said(found(gone)) == ["digits failed on s1"]


@pytest.mark.parametrize("loaded", ["READY", "FAILED"])
def test_a_version_that_crashes_repeatedly_is_told_once_up_or_not(loaded: str) -> None:
    crashing = unwell("FAILING", "crash_loop", "12 crashes of its workers", loaded=loaded)
    (told,) = found(crashing, crashes=[died(1)], server="s1", brought={"digits": "ada"})
    assert said([told]) == ["digits version 1 crashes repeatedly on s1"]
    assert (told.why, told.since, told.by) == (
        "12 crashes of its workers", NOW - timedelta(minutes=30), "ada",
    )  # fmt: skip


def test_versions_that_do_not_answer_as_they_should_are_told_the_failing_first() -> None:
    slow = unwell("DEGRADED", "slow", "p95 30 ms", model="words")
    failing = unwell("FAILING", "errors", "61 of 61 requests failed")
    told = found(slow, failing)
    assert [(one.subject, one.verb.one, one.why) for one in told] == [
        ("digits version 1", "fails requests", "61 of 61 requests failed"),
        ("words version 1", "is slower than on its last day", "p95 30 ms"),
    ]


def died(ready: int) -> VersionCrashes:
    last = (NOW - timedelta(minutes=1)).timestamp()
    return VersionCrashes("digits", 1, 2, ready, 1, last, last, "exited with 3")


def test_an_instance_that_is_restarted_is_told_while_another_one_serves() -> None:
    (told,) = found(load("READY"), crashes=[died(1)], server="s1")
    assert said([told]) == ["digits version 1 serves with 1 of 2 instances on s1"]
    assert not found(load("READY"), crashes=[died(2)], server="s1")
    assert said(found(load("FAILED"), crashes=[died(0)], server="s1")) == [
        "digits version 1 failed on s1"
    ]


def test_a_database_that_takes_no_changes_is_told_first_and_no_server_is_called_silent() -> None:
    told = found(load("FAILED", 1, "s2"), alive=[server("s2", False)], trouble="it was removed")
    assert said(told) == [
        "the control database cannot be used: nothing can be changed",
        "digits version 1 failed on s2",
    ]


def test_a_dead_server_is_told_and_what_it_said_last_is_not() -> None:
    told = found(load("FAILED", 1, "s2"), load("FAILED"), alive=[server(), server("s2", False)])
    assert said(told) == ["server s2 sends no heartbeats", "digits version 1 failed on s1"]


@pytest.mark.parametrize(
    ("reason", "minutes_ago", "where", "is_told"),
    [
        ("kept at version 1: version 2 failed: cut short", 0, "s1", True),
        ("not in force yet, kept at version 1: version 2 is loading", 0.5, "s1", False),
        ("not in force yet, kept at version 1: version 2 is loading", 2, "s1", True),
        ("kept at version 1: version 2 failed: cut short", 2, "dead", False),
    ],
)
def test_what_is_not_in_force_is_told_unless_it_will_be_soon(
    reason: str, minutes_ago: float, where: str, is_told: bool
) -> None:
    at = NOW - timedelta(minutes=minutes_ago)
    pending = [NotInForce("alias digits@champion", where, reason, at, "ada")]
    told = found(pending=pending)
    assert said(told) == ["alias digits@champion is not in force on s1"] * is_told
    assert [one.page for one in told] == ["/models/digits/aliases/champion"] * is_told


def test_a_refused_push_is_told_until_a_better_one_follows_or_a_day_has_gone() -> None:
    (told,) = found(pushes=[push("refused")])
    assert (said([told]), told.why) == (["push to vision was refused"], "one\ntwo")
    assert not found(pushes=[push("served"), push("refused")])
    assert not found(pushes=[push("failed", at=NOW - timedelta(days=2))])


def test_a_kill_switch_that_is_on_is_told_with_who_turned_it_on() -> None:
    (told,) = found(killed=[KilledRoute("digits", "stable", AT, "user:ada")])
    assert (said([told]), told.by) == (["route digits has its kill switch on"], "user:ada")
    assert told.page == "/routes/digits"


def test_a_rollout_that_was_rolled_back_is_told_until_a_newer_one_begins() -> None:
    (told,) = found(rollouts=[rollout("degraded")])
    assert said([told]) == ["rollout of digits to version 3 was rolled back"]
    assert told.why == "too slow"
    assert not found(rollouts=[rollout("step"), rollout("degraded")])
    assert not found(rollouts=[rollout("degraded", NOW - timedelta(days=2))])
