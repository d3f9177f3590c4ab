"""The event stream: live, replayed, filtered, kept alive, and cut off when it must be."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import CapacityLimiter

from control.access.users import change_user, create_user
from control.events.history import forget_events
from control.sql.database import SYSTEM, Database
from support.admin import ANSWER_SECS, Api, api

WAIT_SECS = 60.0


@dataclass
class Frame:
    """One frame of a stream; a comment has its text in `comment`."""

    id: int | None = None
    event: str = ""
    data: Any = None
    comment: str = ""


@contextmanager
def stream(
    running: Api, query: str = "", token: str = "", last: int | None = None
) -> Iterator[Iterator[Frame]]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=ANSWER_SECS)
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    connection.request("GET", f"/api/v1/events{query}", headers=headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    try:
        yield frames(response)
    finally:
        connection.close()
        response.close()


def frames(lines: Any) -> Iterator[Frame]:
    one = Frame()
    for raw in lines:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            one.id = int(value)
        elif name == "event":
            one.event = value
        elif name == "data":
            one.data = json.loads(value)
        elif not name and value:
            one.comment = value
        elif not name:
            yield one
            one = Frame()


def add_user(database: Database, name: str) -> None:
    with database.change(SYSTEM) as tx:
        create_user(tx, name, "viewer")


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def reader(running: Api) -> str:
    running.user("reader", "viewer")
    return running.token("reader", "read")


@pytest.fixture
def far_reader(anywhere: Api) -> str:
    anywhere.user("reader", "viewer")
    return anywhere.token("reader", "read")


def test_a_stream_begins_now_and_tells_what_happens_at_once(running: Api, reader: str) -> None:
    with stream(running, token=reader) as told:
        opening = next(told)
        assert opening.data is None
        assert opening.id is not None
        add_user(running.database, "ada")
        frame = next(told)
    assert (frame.event, frame.data["subject"]) == ("user.created", "user:ada")
    assert frame.id == frame.data["id"] == opening.id + 1


def test_last_event_id_replays_exactly_what_was_missed(anywhere: Api, far_reader: str) -> None:
    with stream(anywhere, token=far_reader) as told:
        last = next(told).id
    for name in ("ada", "bob", "eve"):
        add_user(anywhere.database, name)
    with stream(anywhere, token=far_reader, last=last) as told:
        next(told)
        missed = [next(told) for _ in range(3)]
    assert [one.data["subject"] for one in missed] == ["user:ada", "user:bob", "user:eve"]
    with stream(anywhere, token=far_reader, last=missed[0].id) as told:
        next(told)
        assert next(told).data["subject"] == "user:bob"


def test_a_filtered_stream_passes_over_the_rest(anywhere: Api, far_reader: str) -> None:
    query = "?after=0&kind=user.changed,alias.*&subject=user:*"
    with stream(anywhere, query, far_reader) as told:
        next(told)
        add_user(anywhere.database, "ada")
        with anywhere.database.change(SYSTEM) as tx:
            change_user(tx, "ada", role="operator")
        frame = next(told)
    assert (frame.event, frame.data["subject"]) == ("user.changed", "user:ada")


def test_what_another_process_commits_is_seen_within_a_second(
    anywhere: Api, far_reader: str
) -> None:
    other = Database(anywhere.database.url)
    with stream(anywhere, token=far_reader) as told:
        next(told)
        began = time.monotonic()
        add_user(other, "ada")
        assert next(told).data["subject"] == "user:ada"
    assert time.monotonic() - began < 10.0
    other.close()


def test_many_events_come_complete_and_in_order(running: Api, reader: str) -> None:
    with running.database.change(SYSTEM) as tx:
        for number in range(450):
            tx.happened("test.many", "test", number=number)
    with stream(running, "?after=0&kind=test.many", reader) as told:
        next(told)
        numbers = [next(told).data["data"]["number"] for _ in range(450)]
    assert numbers == list(range(450))


def test_a_quiet_stream_is_kept_alive_and_ends_with_the_token(
    sqlite: Database, tmp_path: Path
) -> None:
    with api(sqlite, tmp_path, heartbeat_s=0.1) as running:
        running.user("reader", "viewer")
        token = running.token("reader", "read")
        with stream(running, token=token) as told:
            next(told)
            assert next(told).comment == "still here"
            with running.database.change(SYSTEM) as tx:
                change_user(tx, "reader", disabled=True)
            rest = list(told)
    assert [one.event for one in rest if one.event] == ["user.changed"]


def test_a_reader_who_went_away_is_forgotten(running: Api, reader: str) -> None:
    with stream(running, token=reader) as told:
        next(told)
        assert running.services.streams.borrowed_tokens == 1
    until(lambda: running.services.streams.borrowed_tokens == 0, "the stream to end")


def test_a_reader_who_takes_nothing_is_cut_off(sqlite: Database, tmp_path: Path) -> None:
    with api(sqlite, tmp_path, slowest_s=0.3) as running:
        running.user("reader", "viewer")
        token = running.token("reader", "read")
        with running.database.change(SYSTEM) as tx:
            for _ in range(400):
                tx.happened("test.large", "test", text="x" * 50_000)
        with socket.create_connection(("127.0.0.1", running.port), ANSWER_SECS) as slow:
            slow.sendall(
                b"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\n"
                b"Accept: text/event-stream\r\nAuthorization: Bearer "
                + token.encode()
                + b"\r\n\r\n"
            )
            assert slow.recv(1)
            until(lambda: running.services.streams.borrowed_tokens == 0, "it to be cut off")
        assert running.ask("GET", "//readyz").status == 200


def test_too_many_streams_are_refused(sqlite: Database, tmp_path: Path) -> None:
    with api(sqlite, tmp_path, streams=CapacityLimiter(1)) as running:
        running.user("reader", "viewer")
        token = running.token("reader", "read")
        with stream(running, token=token) as told:
            next(told)
            headers = {"Accept": "text/event-stream"}
            found = running.ask("GET", "/events", token=token, headers=headers)
    assert (found.status, found.code) == (429, "too_many")


def test_who_missed_events_that_are_forgotten_is_told(running: Api, reader: str) -> None:
    for name in ("ada", "bob", "eve"):
        add_user(running.database, name)
    with running.database.change(SYSTEM) as tx:
        assert forget_events(tx, keep_days=-1, keep=1)
    with stream(running, token=reader, last=1) as told:
        next(told)
        lost = next(told)
    assert lost.event == "events.forgotten"
    assert lost.data["first"] > 2


def test_events_come_as_pages_of_json_too(running: Api, reader: str) -> None:
    for name in ("ada", "bob", "eve"):
        add_user(running.database, name)
    page = running.ask("GET", "/events?limit=2&subject=user:*", token=reader).json
    rest = running.ask("GET", f"/events?cursor={page['next']}&subject=user:*", token=reader).json
    subjects = [one["subject"] for one in page["items"] + rest["items"]]
    assert subjects == ["user:reader", "user:ada", "user:bob", "user:eve"]
    assert rest["next"] is None
    assert page["items"][0]["id"] < rest["items"][0]["id"]


@pytest.mark.parametrize("last", ["x", "-1", "9" * 30])
def test_a_last_event_id_that_is_none_is_refused(running: Api, reader: str, last: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
    found = running.ask("GET", "/events", token=reader, headers=headers)
    assert (found.status, found.code) == (400, "malformed")


def test_asking_for_the_headers_alone_begins_no_stream(running: Api, reader: str) -> None:
    headers = {"Accept": "text/event-stream"}
    found = running.ask("HEAD", "/events", token=reader, headers=headers)
    assert (found.status, found.headers["content-type"]) == (200, "application/json")


def test_closing_ends_every_stream(sqlite: Database, tmp_path: Path) -> None:
    with api(sqlite, tmp_path) as running:
        running.user("reader", "viewer")
        opened = stream(running, token=running.token("reader", "read"))
        told = opened.__enter__()
        next(told)
    assert list(told) == []
    opened.__exit__(None, None, None)
