"""Which events give a notice, and what it says."""

from datetime import UTC, datetime
from typing import Any

import pytest

from control.notifications.kinds import (
    KINDS_OF_EVENTS,
    MEANINGS,
    REPEATED,
    Notice,
    NotificationKind,
    notice_of,
)
from control.views import EventView

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)


def event(kind: str, subject: str, actor: str = "system", **data: Any) -> EventView:
    return EventView(7, AT, kind, subject, actor, data)


def given(kind: str, subject: str, actor: str = "system", failures: int = 1, **data: Any) -> Notice:
    notice = notice_of(event(kind, subject, actor, **data), failures)
    assert notice is not None
    return notice


def load(
    state: str, reason: str, version: int = 2, failures: int = 1, server: str = "s1" * 10
) -> Notice | None:
    data = {"server": server, "version": version, "state": state, "reason": reason}
    return notice_of(event("load.changed", "model:digits", f"server:{server}", **data), failures)


ABORT = {
    "name": "digits",
    "model": "digits",
    "words": "rolled back: error rate 10.1 % against 0.0 %",
    "after": {"candidate": 2, "stable": 1, "phase": "aborting"},
}


def test_a_rollback_says_from_where_to_where_and_why() -> None:
    notice = given("rollout.abort", "rollout:r1", **ABORT)
    assert notice.kind is NotificationKind.ROLLED_BACK
    assert notice.title == "digits rolled back from version 2 to version 1"
    assert notice.reason == "rolled back: error rate 10.1 % against 0.0 %"
    assert (notice.models, notice.version, notice.page) == (("digits",), 2, "/rollouts/r1")
    assert notice.actor == ""


def test_a_rollback_by_a_person_names_the_person() -> None:
    assert given("rollout.abort", "rollout:r1", "user:ada", **ABORT).actor == "user:ada"


def test_a_rollout_of_a_route_is_about_the_route_and_the_model() -> None:
    notice = given("rollout.abort", "rollout:r1", **{**ABORT, "name": "shop"})
    assert notice.models == ("shop", "digits")


def test_going_back_to_an_older_version_is_told_when_it_answers() -> None:
    data = {"name": "digits", "model": "digits", "rollback": "requested by user:ada"}
    back = {
        **data,
        "words": "rolled back, requested by user:ada",
        "after": {"candidate": 1, "stable": 3},
    }
    notice = given("rollout.healthy", "rollout:r1", **back)
    assert notice.kind is NotificationKind.ROLLED_BACK
    assert notice.title == "digits rolled back from version 3 to version 1"
    stuck = given("rollout.abort", "rollout:r1", **{**back, "words": "not gone back"})
    assert stuck.title == "digits could not be rolled back to version 1"
    assert notice_of(event("rollout.healthy", "rollout:r1", **{**back, "rollback": ""})) is None


def test_a_pause_by_the_policy_is_told_and_one_by_a_person_is_not() -> None:
    told = {**ABORT, "words": "paused (inconclusive): p99 has no number"}
    notice = given("rollout.pause", "rollout:r1", **told)
    assert notice.kind is NotificationKind.ROLLOUT_PAUSED
    assert notice.title == "rollout of digits to version 2 paused"
    for person in ("user:ada", "user:ada/token:t1", "local:root"):
        assert notice_of(event("rollout.pause", "rollout:r1", person, **told)) is None


def test_a_version_that_fails_is_told_with_its_reason() -> None:
    notice = load("FAILED", "digits: no such file")
    assert notice is not None
    assert notice.kind is NotificationKind.MODEL_FAILED
    assert notice.title == "digits version 2 failed on server s1s1s1s1"
    assert (notice.reason, notice.page) == ("digits: no such file", "/models/digits")


def test_a_version_that_fails_again_and_again_is_told_as_a_crash_loop() -> None:
    before, now = (
        load("FAILED", "died", failures=REPEATED - 1),
        load("FAILED", "died", failures=REPEATED),
    )
    assert before is not None
    assert now is not None
    assert before.kind is NotificationKind.MODEL_FAILED
    assert now.kind is NotificationKind.CRASH_LOOPING
    assert now.title == "digits version 2 fails repeatedly on server s1s1s1s1"


def test_a_reload_that_failed_is_told_though_the_version_serves() -> None:
    notice = load("READY", "its config is broken")
    assert notice is not None
    assert notice.title.startswith("the reload of digits version 2 failed on server s1s1s1s1")


@pytest.mark.parametrize("state", ["READY", "LOADING", "DRAINING", "UNAVAILABLE"])
def test_a_version_that_goes_its_way_is_not_told(state: str) -> None:
    assert load(state, "") is None


@pytest.mark.parametrize(
    ("kind", "code", "told", "said"),
    [
        ("model.failing", "errors", NotificationKind.MODEL_FAILING, "is failing"),
        ("model.failing", "crash_loop", NotificationKind.CRASH_LOOPING, "crashes again and again"),
        ("model.degraded", "slow", NotificationKind.MODEL_DEGRADED, "is degraded"),
        ("model.recovered", "ok", NotificationKind.MODEL_RECOVERED, "is well again"),
    ],
)
def test_the_health_of_a_version_is_told(
    kind: str, code: str, told: NotificationKind, said: str
) -> None:
    data = {"server": "s1", "version": 2, "reason_code": code, "reason": "61 of 61 failed"}
    notice = given(kind, "model:digits", **data)
    assert (notice.kind, notice.models, notice.version) == (told, ("digits",), 2)
    assert notice.title == f"digits version 2 {said} on server s1"
    assert notice.reason == "61 of 61 failed"


def test_a_reload_that_failed_is_told_once() -> None:
    data = {"server": "s1", "version": 2, "reason_code": "reload_failed", "reason": "x"}
    assert notice_of(event("model.degraded", "model:digits", **data)) is None


def test_a_push_that_was_not_served_names_repository_and_models() -> None:
    data = {"repository": "vision", "models": {"digits": "d", "cats": "e"}}
    notice = given("push.failed", "push:p1", "user:ada", **data, after={"reason": "out of memory"})
    assert notice.kind is NotificationKind.PUSH_FAILED
    assert notice.title == "push to vision was not served"
    assert (notice.models, notice.reason) == (("cats", "digits"), "out of memory")
    assert (notice.actor, notice.page) == ("user:ada", "/pushes/p1")


def test_a_refused_push_is_told_with_the_repository() -> None:
    notice = given("push.refused", "push:p1", after={"repository": "vision"})
    assert (notice.kind, notice.title) == (
        NotificationKind.PUSH_REFUSED,
        "push to vision was refused",
    )


def test_an_import_that_failed_is_told() -> None:
    notice = given("import.failed", "import:i1", model="digits", after={"reason": "404"})
    assert (notice.kind, notice.title) == (
        NotificationKind.IMPORT_FAILED,
        "import of digits failed",
    )


def test_a_job_that_failed_is_told_with_its_reason() -> None:
    after = {"reason": "it took more than 4 GiB"}
    notice = given("job.failed", "job:j1", type="quantise", model="digits", version=2, after=after)
    assert (notice.kind, notice.title, notice.version, notice.reason) == (
        NotificationKind.JOB_FAILED,
        "quantise of digits failed",
        2,
        "it took more than 4 GiB",
    )
    assert notice.page == "/jobs/j1"


def test_the_same_failure_on_another_server_or_with_another_number_has_the_same_key() -> None:
    first, second = (
        load("FAILED", "worker 4711 died"),
        load("FAILED", "worker 23 died", server="s2"),
    )
    assert first is not None
    assert second is not None
    assert first.key == second.key


def test_another_reason_version_or_rollout_has_another_key() -> None:
    keys = {
        notice.key
        for notice in (
            load("FAILED", "worker died"),
            load("FAILED", "no such file"),
            load("FAILED", "worker died", version=3),
            given("rollout.abort", "rollout:r1", **ABORT),
            given("rollout.abort", "rollout:r2", **ABORT),
        )
        if notice is not None
    }
    assert len(keys) == 5


def test_texts_are_cut_to_their_bounds() -> None:
    notice = load("FAILED", "x" * 10_000)
    assert notice is not None
    assert len(notice.reason) == 2_000


def test_every_kind_has_a_meaning_and_an_event_that_gives_it() -> None:
    assert set(MEANINGS) == set(NotificationKind)
    assert "load.changed" in KINDS_OF_EVENTS
    assert notice_of(event("alias.moved", "alias:digits@best")) is None
