"""Lists on the server: sorted, filtered, cut into pages; what is wrong now; words and sizes."""

from datetime import UTC, datetime, timedelta

import pytest

from admin_ui.event_text import together, words
from admin_ui.problems import ProblemInputs, problems
from admin_ui.text import age, count, duration, link, moment, number, plain, size, spoken, who
from control import loads
from control.clock import text_of
from control.health import of_load
from control.sql.database import Actor
from support.admin import Api
from support.console import person

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
AT = text_of(NOW - timedelta(minutes=3))


@pytest.fixture
def many(running: Api) -> Api:
    rows = [(f"model{number:03}", 1, "READY", "") for number in range(120)]
    with running.database.change(Actor("server:server1", "system")) as tx:
        loads.record(tx, "server1", [*rows, ("zebra", 1, "FAILED", "stripes")])
    return running


def test_a_list_is_sorted_filtered_and_paged_on_the_server(many: Api) -> None:
    vera = person(many, "viewer", "vera")

    def names(query: str) -> list[str]:
        return [row["name"] for row in vera.get(f"/models.json?{query}").json["items"]]

    assert names("")[:2] == ["model000", "model001"]
    assert len(names("")) == 50
    assert names("page=3")[-1] == "zebra"
    assert names("sort=-name")[0] == "zebra"
    assert names("sort=state")[0] == "zebra"
    assert names("q=ZEB") == ["zebra"]
    assert names("state=FAILED") == ["zebra"]
    assert names("page=99&sort=nonsense&q=")[-1] == "zebra"


def test_a_pages_links_keep_the_rest_of_the_query(many: Api) -> None:
    shown = person(many, "viewer", "vera").get("/models?q=model&sort=-name").text
    assert 'href="/models?q=model&amp;sort=-name&amp;page=2"' in shown
    assert "120 models of 121" in shown
    assert 'aria-sort="descending"' in shown


def load(
    state: str, version: int = 1, server: str = "s1", reason: str | None = None
) -> dict[str, object]:
    facts = {"server": server, "model": "digits", "version": version, "state": state}
    why = ("cut short" if state == "FAILED" else "") if reason is None else reason
    judged = of_load(state, why, 0.0)
    health = {"state": judged.state, "reason_code": judged.code, "reason": why, "since": AT}
    return {**facts, "reason": why, "at": AT, "health": health}


def unwell(health_state: str, code: str, reason: str, **facts: object) -> dict[str, object]:
    """A version that is loaded and not well for half an hour."""
    since = text_of(NOW - timedelta(minutes=30))
    health = {"state": health_state, "reason_code": code, "reason": reason, "since": since}
    return {**load("READY"), "health": health, **facts}


def push(state: str, ref: str = "main", at: str = AT) -> dict[str, object]:
    return {
        "id": f"{state}{ref}", "repository": "vision", "ref": ref, "state": state,
        "finished_at": at, "received_at": at, "reason": "", "report": "one\ntwo", "pusher": "ada",
    }  # fmt: skip


ALIVE = [{"id": "s1", "alive": True, "seen_at": AT}]


def test_a_version_that_failed_is_told_once_with_who_brought_it() -> None:
    models = [{"name": "digits", "push": "served-main"}]
    pushes = [{**push("served"), "id": "served-main"}]
    told = problems(ProblemInputs([load("FAILED"), load("FAILED", 0)], ALIVE, models, pushes), NOW)
    assert [(one.kind, one.title, one.who) for one in told] == [
        ("load", "digits version 1 failed on server s1", "ada")
    ]


def test_a_reload_that_failed_is_told_while_the_version_serves_on() -> None:
    served = load("READY", reason="serving what was loaded before: cut short")
    (told,) = problems(ProblemInputs([served, load("READY", 2)], ALIVE, []), NOW)
    assert told.title == "the reload of digits version 1 failed on server s1"
    assert told.why == "serving what was loaded before: cut short"
    assert not problems(ProblemInputs([{**served, "server": "dead"}], ALIVE, []), NOW)


def test_a_model_whose_folder_cannot_be_followed_is_told_while_it_serves_on() -> None:
    gone = load("FAILED", 0, reason="the folder has turned empty")
    (told,) = problems(ProblemInputs([gone, load("READY")], ALIVE, []), NOW)
    assert told.title == "digits keeps what it serves on server s1"
    assert [one.title for one in problems(ProblemInputs([gone], ALIVE, []), NOW)] == [
        "digits failed on server s1"
    ]


def test_models_of_an_emptied_repository_are_one_problem() -> None:
    reason = "model repository 'models' has turned empty at once, with 2 models gone"
    gone = [{**load("FAILED", 0, reason=reason), "model": name} for name in ("a", "b")]
    serving = [{**load("READY"), "model": name} for name in ("a", "b")]
    (told,) = problems(ProblemInputs([*gone, *serving], ALIVE, []), NOW)
    assert told.title == "2 models keep what they serve on server s1"
    assert told.why == f"{reason} (a, b)"
    assert told.to == "/models"
    other = {**load("FAILED", 0, reason="no config"), "model": "c"}
    titles = [
        one.title for one in problems(ProblemInputs([*gone, *serving, other], ALIVE, []), NOW)
    ]
    assert titles == ["2 models keep what they serve on server s1", "c failed on server s1"]


def pending(reason: str, minutes_ago: float, server: str = "s1") -> dict[str, object]:
    at = text_of(NOW - timedelta(minutes=minutes_ago))
    told = [{"server": server, "reason": reason, "at": at}]
    return {
        "model": "digits", "name": "champion", "only": "", "updated_by": "ada", "pending": told,
    }  # fmt: skip


def test_aliases_and_routes_that_are_not_in_force_are_told_unless_they_will_be_soon() -> None:
    stuck = pending("kept at version 1: version 2 failed: cut short", 0)
    told = problems(ProblemInputs([], ALIVE, [], routes=[stuck], aliases=[stuck]), NOW)
    assert [(one.title, one.to, one.who) for one in told] == [
        ("alias digits@champion is not in force on server s1",
         "/models/digits/aliases/champion", "ada"),
        ("route champion is not in force on server s1", "/routes/champion", "ada"),
    ]  # fmt: skip
    waits = "not in force yet, kept at version 1: version 2 is loading"
    for minutes_ago, told_of in ((0.5, 0), (2, 1)):
        aliases = [pending(waits, minutes_ago), pending(waits, 2, "dead")]
        assert len(problems(ProblemInputs([], ALIVE, [], aliases=aliases), NOW)) == told_of


def test_an_instance_that_is_restarted_is_told_while_another_one_serves() -> None:
    one = {**death(1), "ready": 1, "instances": 2}
    (told,) = problems(ProblemInputs([load("READY")], ALIVE, [], deaths=[one]), NOW)
    assert told.title == "digits version 1 serves with 1 of 2 instances on server s1"
    back = {**one, "ready": 2}
    assert not problems(ProblemInputs([load("READY")], ALIVE, [], deaths=[back]), NOW)
    (failed,) = problems(
        ProblemInputs([load("FAILED")], ALIVE, [], deaths=[{**one, "ready": 0}]), NOW
    )
    assert failed.title == "digits version 1 failed on server s1"


def test_a_database_that_takes_no_changes_is_told_before_all_else() -> None:
    told = problems(ProblemInputs([load("FAILED")], ALIVE, [], trouble="the file was removed"), NOW)
    assert told[0].title == "nothing can be changed: the control database cannot be used"
    assert (told[0].why, len(told)) == ("the file was removed", 2)


def test_no_server_is_called_silent_while_no_heartbeat_can_be_written() -> None:
    late = [{"id": "s2", "alive": False, "seen_at": AT}]
    told = problems(
        ProblemInputs([load("FAILED", 1, "s2")], late, [], trouble="the file was removed"), NOW
    )
    assert [one.title for one in told] == [
        "nothing can be changed: the control database cannot be used",
        "digits version 1 failed on server s2",
    ]


def test_a_dead_server_is_told_first_and_what_it_said_last_is_not() -> None:
    dead = [{"id": "s2", "alive": False, "seen_at": AT}]
    told = problems(
        ProblemInputs([load("FAILED", 1, "s2"), load("FAILED")], [*ALIVE, *dead], []), NOW
    )
    assert [one.title for one in told] == [
        "server s2 sends no heartbeats",
        "digits version 1 failed on server s1",
    ]


def test_a_refused_push_is_told_until_a_better_one_follows_or_a_day_has_gone() -> None:
    yesterday = text_of(NOW - timedelta(days=2))
    assert [one.why for one in problems(ProblemInputs([], ALIVE, [], [push("refused")]), NOW)] == [
        "one\ntwo"
    ]
    assert not problems(ProblemInputs([], ALIVE, [], [push("served"), push("refused")]), NOW)
    assert not problems(ProblemInputs([], ALIVE, [], [push("failed", at=yesterday)]), NOW)


@pytest.mark.parametrize("state", ["READY", "FAILED"])
def test_a_version_that_crashes_again_and_again_is_told_once_up_or_not(state: str) -> None:
    models, pushes = [{"name": "digits", "push": "p"}], [{**push("served"), "id": "p"}]
    crashing = unwell("FAILING", "crash_loop", "12 crashes of its workers", state=state)
    (told,) = problems(ProblemInputs([crashing], ALIVE, models, pushes, deaths=[death(12)]), NOW)
    assert told.title == "digits version 1 crashes repeatedly on server s1"
    assert told.why == "12 crashes of its workers"
    assert (told.since, told.who, told.to) == (
        text_of(NOW - timedelta(minutes=30)), "ada", "/models/digits",
    )  # fmt: skip


def test_versions_that_do_not_answer_as_they_should_are_told_the_failing_first() -> None:
    slow = unwell("DEGRADED", "slow", "p95 30 ms", model="words")
    failing = unwell("FAILING", "errors", "61 of 61 requests failed")
    told = problems(ProblemInputs([slow, failing], ALIVE, []), NOW)
    assert [(one.title, one.why) for one in told] == [
        ("digits version 1 fails requests on server s1", "61 of 61 requests failed"),
        ("words version 1 is slower than on its last day on server s1", "p95 30 ms"),
    ]
    assert not problems(ProblemInputs([{**failing, "server": "dead"}], ALIVE, []), NOW)


def death(count: int, minutes_ago: float = 1, server: str = "s1") -> dict[str, object]:
    last, since = (text_of(NOW - timedelta(minutes=ago)) for ago in (minutes_ago, 90))
    where = {"server": server, "model": "digits", "version": 1, "instances": 2, "ready": 1}
    return {**where, "deaths": count, "since": since, "last": last, "ending": "exited with 3"}


def test_a_kill_switch_that_is_on_is_told_with_who_turned_it_on() -> None:
    calm = {
        "name": "shop", "only": "", "updated_at": AT, "updated_by": "user:ada", "pending": [],
    }  # fmt: skip
    routes = [calm, {**calm, "name": "digits", "only": "stable"}]
    (told,) = problems(ProblemInputs([], ALIVE, [], routes=routes), NOW)
    assert (told.title, told.to) == ("the kill switch of route digits is on", "/routes/digits")
    assert told.who == "user:ada"


def rollout(phase: str, name: str = "digits", at: str = AT) -> dict[str, object]:
    facts = {"id": f"{phase}1", "name": name, "candidate": 3, "reason": "too slow", "by": "ada"}
    return {**facts, "phase": phase, "finished_at": at, "updated_at": at}


def test_a_rollout_that_was_rolled_back_is_told_until_a_newer_one_begins() -> None:
    (told,) = problems(ProblemInputs([], ALIVE, [], rollouts=[rollout("degraded")]), NOW)
    assert told.title == "rollout of digits to version 3 was rolled back"
    assert told.why == "too slow"
    assert not problems(
        ProblemInputs([], ALIVE, [], rollouts=[rollout("step"), rollout("degraded")]), NOW
    )
    old = rollout("degraded", at=text_of(NOW - timedelta(days=2)))
    assert not problems(ProblemInputs([], ALIVE, [], rollouts=[old]), NOW)


def test_lengths_of_time_and_numbers_are_told_as_people_say_them() -> None:
    told = [duration(one) for one in (0.5, 30, 90, 3600, 3562, 90061)]
    assert told == ["0.5 s", "30 s", "1 min 30 s", "1 h", "59 min 22 s", "1 d 1 h"]
    assert spoken("waits for 3562 s and 2000 more") == "waits for 59 min 22 s and 2000 more"
    assert [number(one) for one in (10.0, 0.12345, 1234.56)] == ["10", "0.1235", "1,235"]
    assert [plain("a"), plain(["b", None]), plain(1.5)] == ["a", '["b", null]', "1.5"]


def test_values_have_units_and_moments_a_zone() -> None:
    assert [size(1), size(1536), size(3 * 2**40)] == ["1 B", "1.5 KiB", "3.0 TiB"]
    assert [count(1, "model"), count(1200, "model")] == ["1 model", "1,200 models"]
    assert moment("2026-11-22T04:00:00+01:00") == "2026-11-22 03:00:00 UTC"
    assert [age(AT, NOW), age(text_of(NOW + timedelta(days=2)), NOW)] == ["3 min ago", "in 2 d"]
    assert link("/models/{model}", model="a b/c?.json") == "/models/a%20b%2Fc%3F%2Ejson"
    assert who("user:ada/token:01m8") == "ada (token)"


def test_events_of_several_models_that_say_the_same_are_one() -> None:
    data = {"version": 0, "state": "FAILED", "server": "s1", "reason": "it turned empty"}
    events = [{"kind": "load.changed", "subject": f"model:{name}", "data": data} for name in "abc"]
    other = {**events[0], "data": {**data, "version": 1, "reason": ""}}
    found = [words(one) for one in together([*events, other, other])]
    ready = "a version 1 is failed on server s1"
    assert found == ["a, b, c on server s1: it turned empty", ready, ready]


def test_events_are_told_in_words() -> None:
    told = {"kind": "load.changed", "subject": "model:digits"}
    data = {"version": 2, "state": "FAILED", "server": "s1", "reason": "cut short"}
    assert words({**told, "data": data}) == "digits version 2 is failed on server s1: cut short"
    whole = {"version": 0, "state": "FAILED", "server": "s1", "reason": "it turned empty"}
    assert words({**told, "data": whole}) == "digits on server s1: it turned empty"
    over = {"kind": "load.gone", "subject": "model:digits", "data": {"server": "s1", "version": 0}}
    assert words(over) == "digits as a whole has no problem any more on server s1"
    moved = {"kind": "alias.moved", "subject": "alias:m@best", "data": {"after": {"version": 3}}}
    assert words(moved) == "alias m@best moved to version 3"
    assert words({"kind": "new.kind_of_thing", "subject": "x:y", "data": {}}) == (
        "new y kind of thing"
    )
