"""A tab's stream: what is sent, when, what of it is caught up with, and when it ends."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from admin_ui.watches import LEAST_PAUSE_S, MOST_PAUSE_S, SHARE, pause_s
from control import loads
from control.access.users import change_user
from control.sql.database import SYSTEM, Actor, Database
from support.admin import Api
from support.console import COOKIE, Person, console_over, person

PATIENCE_S = 60.0


class Stream:
    """The messages of one stream."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def message(self) -> dict[str, str]:
        """The next one, comments left out; {} at the end."""
        found: dict[str, str] = {}
        while True:
            line = self._response.readline().decode()
            if not line:
                return {}
            name, colon, value = line.rstrip("\n").partition(": ")
            if colon and name:
                found[name] = value
            elif not line.strip() and set(found) & {"event", "data"}:
                return found
            elif not line.strip():
                found = {}


@contextmanager
def stream(
    one: Person, at: str, after: int | str, look: bool = False, **headers: str
) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", one.api.port, timeout=PATIENCE_S)
    try:
        asked = urlencode({"at": at, "after": after, **({"look": "1"} if look else {})})
        said = {"Cookie": f"{COOKIE}={one.cookie}", **headers}
        connection.request("GET", f"/live?{asked}", headers=said)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)
    finally:
        connection.close()


def newest(one: Api) -> int:
    return int(one.local("GET", "/events?newest=true&limit=1").json["items"][0]["id"])


def load(database: Database, *rows: Any) -> None:
    with database.change(Actor("server:server1", "system")) as tx:
        loads.record(tx, "server1", rows)


def test_a_load_arrives_as_the_live_part_of_the_page(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    with stream(vera, "/models", newest(night)) as tab:
        load(night.database, ("digits", 1, "FAILED", "<b>gone</b>"))
        told = tab.message()
    assert told["event"] == "live"
    sent = json.loads(told["data"])
    assert "digits" in sent["html"]
    assert "failed" in sent["html"]
    assert "<h1>" not in sent["html"]
    assert "digits version 1 failed on server server1" in sent["say"]


@pytest.mark.parametrize("at", ["/", "/models/digits", "/models/digits/versions/1"])
def test_a_page_with_charts_is_kept_up_to_date(night: Api, at: str) -> None:
    vera = person(night, "viewer", "vera")
    with stream(vera, at, newest(night)) as tab:
        load(night.database, ("digits", 1, "FAILED", "the weights are gone"))
        assert "the weights are gone" in json.loads(tab.message()["data"])["html"]


def test_what_was_missed_is_made_up_for(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    before = newest(night)
    load(night.database, ("later", 1, "READY", ""))
    with stream(vera, "/models", "0", **{"Last-Event-ID": str(before)}) as tab:
        told = tab.message()
    assert "later" in json.loads(told["data"])["html"]
    assert int(told["id"]) > before


def test_a_page_that_was_hidden_is_brought_up_to_date_at_once(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    with stream(vera, "/repositories", newest(night), look=True) as tab:
        assert tab.message()["event"] == "live"


def test_only_what_the_page_shows_is_news_to_it(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    with stream(vera, "/repositories", newest(night)) as tab:
        load(night.database, ("digits", 1, "FAILED", ""))
        night.local("POST", "/repositories", {"name": "second"})
        assert "second" in json.loads(tab.message()["data"])["html"]


def test_a_burst_is_told_at_most_once_a_second(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    with stream(vera, "/models", newest(night)) as tab:
        began, pieces, last = time.monotonic(), 0, ""
        for number in range(1, 31):
            load(night.database, ("digits", 1, "READY", ""), (f"burst{number}", 1, "READY", ""))
        while "burst30" not in last:
            last = json.loads(tab.message()["data"])["html"]
            pieces += 1
        assert pieces <= 2 + (time.monotonic() - began)


def test_the_stream_ends_with_the_session(sqlite: Database, tmp_path: Path) -> None:
    with console_over(sqlite, tmp_path, heartbeat_s=0.3) as running:
        vera = person(running, "viewer", "vera")
        with stream(vera, "/models", 0) as tab:
            with sqlite.change(SYSTEM) as tx:
                change_user(tx, "vera", disabled=True)
            told = tab.message()
            while told and told["event"] != "over":
                told = tab.message()
            assert told["event"] == "over"
            assert tab.message() == {}


def test_a_stream_of_no_screen_or_from_nowhere_is_refused(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    assert vera.get("/live?at=/nowhere", Accept="text/event-stream").status == 404
    assert vera.get("/live?at=/models&after=x").status == 400
    assert Person(night).get("/live?at=/models").status == 303
    otto = person(night, "operator", "otto")
    with stream(otto, "/settings", 0) as tab:
        night.local("POST", "/users", {"name": "x", "role": "viewer"})
        assert tab is not None  # it never gets a piece: the API refuses whoever asks


def test_a_tab_costs_no_more_than_its_share() -> None:
    assert pause_s(0.001) == LEAST_PAUSE_S
    for took_s in (0.02, 0.1):
        assert took_s / pause_s(took_s) <= SHARE
    assert pause_s(60.0) == MOST_PAUSE_S
