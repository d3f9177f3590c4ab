"""Text from strangers, in every place where pages show it: it stays text."""

from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from admin_ui.snapshots import config
from admin_ui.text import harmless, link
from control import loads
from control.access.scopes import Principal, Role
from control.deployments import pushes
from control.deployments.repositories import create_repository
from control.experiments.service import conclude_experiment
from control.experiments.tables import Experiment
from control.gateways.queries import Query, RequestsQuery
from control.sql.database import SYSTEM, Actor, Database
from repository.git.rules import RefUpdate
from schedulers.request import InferRequest
from server.errors import Internal
from server.history.history import RequestHistory
from server.inference import Inference
from server.samples.samples import Samples
from support.admin import Api
from support.console import console_over, person
from support.deployed import deploy
from support.experiments import exposed, given, seen, started, stopped, told

CORPUS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</textarea></title><svg onload=alert(1)>",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "a\u202egnp.exe",
    "line\r\nSet-Cookie: a=b",
)
MARKS = ("<script>alert", "<img src=x", "<svg", "onfocus=alert(1) x='", "\x1b", "\u202e")


def fill(database: Database, text: str) -> str:
    """The corpus in a model's name, a reason, a commit, a report; the push's id."""
    name = printable(text)
    with database.change(SYSTEM) as tx:
        create_repository(tx, "vision")
        facts = pushes.PushFacts(subject=text, author=text, pusher=text)
        update = RefUpdate("0" * 40, "a" * 40, "refs/heads/main")
        view = pushes.refuse(tx, "vision", update, facts, report=f"remote: {text}")
    with database.change(Actor("server:server1", "system")) as tx:
        loads.record(tx, "server1", [(name, 0, "FAILED", text), (name, 1, "FAILED", text)])
    return view.id


@pytest.mark.parametrize("text", CORPUS)
def test_what_strangers_wrote_is_inert_on_every_page(running: Api, text: str) -> None:
    push = fill(running.database, text)
    ada = person(running, "admin", "ada")
    ada.post("/access/tokens", {"name": text[:90], "scopes": "infer:*", "days": "7"})
    model = ada.get("/models.json").json["items"][0]["name"]
    paths = (
        "/", "/models", link("/models/{model}", model=model), "/pushes", f"/pushes/{push}",
        "/access", "/audit", "/servers", "/repositories/vision",
    )  # fmt: skip
    for path in paths:
        found = ada.get(path)
        assert found.status == 200, (path, found.text[-400:])
        body = found.text.partition("<main")[2]
        for mark in MARKS:
            assert mark not in body, (path, mark)


def printable(text: str) -> str:
    """What may be left of it in a name."""
    return "".join(c for c in text if c.isprintable() and c not in "/\\") or "x"


def tried(database: Database, text: str) -> str:
    """An experiment of that name, as only a database from elsewhere can hold it, on a route of that
    name; with feedback that has it in every place, concluded with it. The experiment's name."""
    name = printable(text)
    view = started(database, route=name)
    with database.change(SYSTEM) as tx:
        tx.session.get_one(Experiment, view.id).name = name
    view = replace(view, name=name)
    assert exposed(database, seen(view, "a", text)).new == 1
    rows = [
        told(view, text, value, metric, key=text, model=text)
        for metric in ("conversion", "revenue", text)
        for value in (True, 1.0, text)
    ]
    assert {"counted", "refused", "unknown"} <= set(given(database, *rows))
    stopped(database, name)
    with database.change(Actor(f"user:{name}", "console")) as tx:
        conclude_experiment(tx, name, text)
    return name


@pytest.mark.parametrize("text", CORPUS)
def test_experiments_and_their_feedback_are_inert(night: Api, text: str) -> None:
    name = tried(night.database, text)
    otto = person(night, "operator", "otto")
    paths = (
        "/", "/experiments", "/audit",
        link("/experiments/{experiment}", experiment=name),
        link("/experiments/{experiment}", experiment=f"{text} that is not there"),
    )  # fmt: skip
    for path in paths:
        found = otto.get(path)
        assert found.status in (200, 404), (path, found.text[-400:])
        body = found.text.partition("<main")[2]
        assert not [mark for mark in MARKS if mark in body], path
    assert name in unescape(otto.get("/experiments").text.partition("<main")[2])
    assert "Decided:" in otto.get(paths[3]).text
    form = {"name": text, "route": text, "metrics": text, "horizon": text}
    found = otto.post("/experiments", form)
    assert found.status == 422
    assert not [mark for mark in MARKS if mark in found.text.partition("<main")[2]]


def sampled(samples: Samples, text: str) -> None:
    """A request whose every text is from a stranger, kept with its values."""
    inputs = {text: np.array([text.encode()] * 2, np.object_)}
    asked = InferRequest(
        "digits", 1, inputs, 1, None, 0, text, principal=Principal(text, Role.VIEWER, None)
    )
    sample = samples.begin(asked, text, False)
    assert sample is not None
    sample.refused(Internal(text))


@pytest.mark.parametrize("values", [False, True], ids=["redacted", "values"])
def test_what_clients_sent_is_inert_among_the_requests(
    sqlite: Database, tmp_path: Path, values: bool
) -> None:
    samples, history = Samples(), RequestHistory()

    async def ask(query: Query) -> Any:
        if isinstance(query, RequestsQuery):
            return history.answer(query)
        return samples.answer(query)

    with console_over(sqlite, tmp_path, ask_gateway=ask) as running:
        deploy(running.database)
        assert running.local("PUT", "/sampling/digits", {"values": values}).status == 200
        for text in CORPUS:
            sampled(samples, text)
            asked = Inference(text, "")
            asked.client_id = text
            history.refused(asked, 0, Internal(text))
        found = person(running, "operator", "otto").get("/requests")
    assert found.status == 200
    body = found.text.partition("<main")[2]
    assert ("<pre" in body) is values
    assert body.count("<tr>") == 2 * len(CORPUS) + 4  # three heads, and the model that is sampled
    assert not [mark for mark in MARKS if mark in body]


def test_what_is_typed_comes_back_as_text(running: Api) -> None:
    ada = person(running, "admin", "ada")
    for text in CORPUS:
        found = ada.get(f"/models?q={'%22%3E%3Cscript%3Ealert(1)'}")
        assert "<script>alert" not in found.text
        found = ada.post("/access/users", {"name": text, "role": "viewer"})
        assert found.status == 422
        assert "<script>alert" not in found.text
        assert "<img src=x" not in found.text


def test_terminal_sequences_are_gone_and_the_rest_that_steers_is_shown() -> None:
    assert harmless("\x1b[31mred\x1b[0m") == "red"
    assert harmless("\x1b]8;;http://evil\x07link\x1b]8;;\x07") == "link"
    assert harmless("a\u202eb\x00") == "a⟨U+202E⟩b⟨U+0000⟩"
    assert harmless("two\nlines\tand a tab") == "two\nlines\tand a tab"


def test_a_config_outside_of_its_snapshot_is_not_read(tmp_path: Path) -> None:
    assert config(tmp_path, "../../etc", "passwd") is None
    assert config(tmp_path, "a" * 64, "digits") is None
