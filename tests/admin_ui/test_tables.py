"""Lists on the server: sorted, filtered, cut into pages; what is wrong now; words and sizes."""

from datetime import UTC, datetime, timedelta

import pytest

from admin_ui.event_text import merge_events, words
from admin_ui.text import (
    age,
    count,
    duration,
    link,
    measured,
    moment,
    number,
    plain,
    size,
    spoken,
    who,
)
from control import loads
from control.clock import text_of
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


def test_lengths_of_time_and_numbers_are_told_as_people_say_them() -> None:
    told = [duration(one) for one in (0.5, 0.00977, 30, 90, 3600, 3562, 90061)]
    assert told == ["500 ms", "9.77 ms", "30 s", "1 min 30 s", "1 h", "59 min 22 s", "1 d 1 h"]
    assert spoken("waits for 3562 s and 2000 more") == "waits for 59 min 22 s and 2000 more"
    assert [number(one) for one in (10.0, 0.12345, 1234.56)] == ["10", "0.1235", "1,235"]
    assert [measured(one) for one in (10.0, 0.2126, 23.09, 297.2, 1234.5)] == [
        "10",
        "0.213",
        "23.1",
        "297",
        "1,234",
    ]
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
    found = [words(one) for one in merge_events([*events, other, other])]
    ready = "a version 1 failed on server s1"
    assert found == ["a, b, c on server s1: it turned empty", ready, ready]


def test_lists_leave_out_what_says_nothing() -> None:
    loading = {"kind": "load.changed", "subject": "model:m", "data": {"state": "LOADING"}}
    ready = {**loading, "data": {"state": "READY", "version": 1}}
    measured = {"kind": "experiment.measured", "subject": "experiment:e", "data": {}}
    ended = {"kind": "rollout.degrade", "subject": "rollout:r", "data": {}}
    assert merge_events([loading, ready, measured, ended]) == [ready]


@pytest.mark.parametrize(
    ("kind", "subject", "data", "sentence"),
    [
        ("model.failing", "model:digits",
         {"version": 2, "server": "s1", "state": "FAILING", "reason": "61 of 61 requests failed"},
         "digits version 2 on server s1 is failing: 61 of 61 requests failed"),
        ("model.recovered", "model:digits", {"version": 2, "server": "s1", "state": "READY"},
         "digits version 2 on server s1 answers as it should again"),
        ("route.changed", "route:shop",
         {"before": {"arms": [{"name": "candidate", "weight": 10, "model": "m", "version": 1,
                               "alias": None}]},
          "after": {"arms": [{"name": "candidate", "weight": 50, "model": "m", "version": 1,
                              "alias": None}]}},
         "route shop changed: weights candidate 10 → 50 %"),
        ("model.deployed", "model:digits",
         {"after": {"versions": [1, 2], "commit": "0123456789abcdef"}},
         "digits deployed with versions 1, 2, commit 0123456789"),
        ("version.added", "version:digits@3", {"after": {"pusher": "user:ada"}},
         "digits version 3 is new"),
        ("experiment.concluded", "experiment:colour", {"decision": "red wins"},
         "experiment colour concluded: red wins"),
        ("repository.changed", "repository:vision",
         {"before": {"signing": "off", "a": 1}, "after": {"signing": "warn", "a": 1}},
         "repository vision: signing off → warn"),
        ("problem.acknowledged", "problem:0123",
         {"after": {"title": "digits fails requests", "note": "known"}},
         "digits fails requests: acknowledged, “known”"),
    ],
)  # fmt: skip
def test_events_say_what_changed(
    kind: str, subject: str, data: dict[str, object], sentence: str
) -> None:
    assert words({"kind": kind, "subject": subject, "data": data}) == sentence


def test_events_are_told_in_words() -> None:
    told = {"kind": "load.changed", "subject": "model:digits"}
    data = {"version": 2, "state": "FAILED", "server": "s1", "reason": "cut short"}
    assert words({**told, "data": data}) == "digits version 2 failed on server s1: cut short"
    whole = {"version": 0, "state": "FAILED", "server": "s1", "reason": "it turned empty"}
    assert words({**told, "data": whole}) == "digits on server s1: it turned empty"
    over = {"kind": "load.gone", "subject": "model:digits", "data": {"server": "s1", "version": 0}}
    assert words(over) == "digits as a whole has no problem any more on server s1"
    moved = {"kind": "alias.moved", "subject": "alias:m@best", "data": {"after": {"version": 3}}}
    assert words(moved) == "alias m@best moved to version 3"
    assert words({"kind": "new.kind_of_thing", "subject": "x:y", "data": {}}) == (
        "new y kind of thing"
    )
