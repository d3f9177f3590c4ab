"""`modelyard route …` as a person runs it."""

import argparse
import json
from typing import Any

import pytest

from control import loads
from control.deployments import pending_changes
from control.sql.database import SYSTEM
from server.cli import main as cli
from server.cli.commands.routes import arm, match
from support.admin import Api
from support.deployed import deploy

Run = Any


@pytest.fixture
def run(
    running: Api,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command in the folder of the state folder; (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELYARD_STATE_DIR", "state")
    deploy(running.database)

    def one(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return one


def test_a_route_is_set_weighed_killed_explained_and_deleted(run: Run, running: Api) -> None:
    arms = ("--arm", "stable=digits:1=90", "--arm", "candidate=digits:2=10")
    made = run("route", "set", "numbers", *arms, "--unit", "header:x-user")
    assert made == (0, "numbers: stable=digits:1 90 %, candidate=digits:2 10 %\n", "")
    assert run("route", "set", "numbers", "--weight", "candidate=25")[0] == 0
    rules = ("--match", "x-tester: y*=candidate", "--mirror", "candidate=5")
    assert run("route", "set", "numbers", *rules)[0] == 0
    shown = json.loads(run("route", "show", "numbers", "--json")[1])
    assert [one["weight"] for one in shown["arms"]] == [75, 25]
    assert shown["unit"] == "header:x-user"
    assert shown["matches"][0] == {
        "header": "x-tester",
        "value": "y",
        "prefix": True,
        "arm": "candidate",
    }
    assert "candidate 5 %" in run("route", "list")[1]
    said = run("route", "explain", "numbers", "--unit", "ada", "--header", "x-tester: yes")[1]
    assert said.startswith("candidate (digits version 2): the rule on the header 'x-tester'")
    said = run("route", "kill", "numbers")[1]
    assert said == "all of numbers goes to stable until `modelyard route unkill`\n"
    with running.database.change(SYSTEM) as tx:
        rows = [("digits", 1, "READY", ""), ("digits", 2, "FAILED", "its worker died")]
        loads.record(tx, "server1", rows)
    said = run("route", "kill", "numbers", "candidate")[1]
    assert said.startswith("all of numbers goes to candidate until `modelyard route unkill`; what ")
    assert "digits version 2 is FAILED on server server1 (its worker died); " in said
    assert run("route", "unkill", "numbers")[0] == 0
    assert run("route", "set", "numbers", "--no-rules")[0] == 0
    assert json.loads(run("route", "show", "numbers", "--json")[1])["mirrors"] == []
    assert run("route", "delete", "numbers") == (0, "route numbers deleted\n", "")
    assert json.loads(run("route", "list", "--json")[1]) == []


UNREADY = (
    "; what answered before keeps answering until that is ready: digits version 2 is FAILED on "
    "server "
    "server1 (its worker died); `modelyard {} list` says what is pending\n"
)


def fail_candidate(running: Api) -> None:
    with running.database.change(SYSTEM) as tx:
        rows = [("digits", 1, "READY", ""), ("digits", 2, "FAILED", "its worker died")]
        loads.record(tx, "server1", rows)


def test_a_change_that_is_not_in_force_yet_says_so(run: Run, running: Api) -> None:
    fail_candidate(running)
    arms = ("--arm", "stable=digits:1=90", "--arm", "candidate=digits:2=10")
    said = run("route", "set", "numbers", *arms)[1]
    assert said.startswith("numbers: stable=digits:1 90 %, candidate=digits:2 10 %; what ")
    assert said.endswith(UNREADY.format("route"))
    said = run("route", "set", "numbers", "--weight", "candidate=50")[1]
    assert said.endswith(UNREADY.format("route"))
    said = run("route", "kill", "numbers", "candidate")[1]
    assert said.endswith(UNREADY.format("route"))
    said = run("alias", "set", "digits", "next", "2")[1]
    assert said == "digits@next is version 2" + UNREADY.format("alias")
    assert run("alias", "set", "digits", "best", "1")[1] == "digits@best is version 1\n"
    said = run("route", "set", "other", "--arm", "stable=digits@next=100")[1]
    assert said.endswith(UNREADY.format("route"))


def test_a_model_shows_what_is_pending_of_its_aliases(run: Run, running: Api) -> None:
    assert run("alias", "set", "digits", "next", "2")[0] == 0
    with running.database.change(SYSTEM) as tx:
        pending_changes.record(
            tx, "server1", [("alias digits@next", "not in force yet: it is loading")]
        )
    lines = run("model", "show", "digits")[1].splitlines()
    (told,) = (line for line in lines if line.startswith("pending"))
    assert told.endswith("server server1: not in force yet: it is loading")


def test_items_of_lists_and_changes_of_weights_are_told_apart_from_versions(run: Run) -> None:
    arms = ("--arm", "stable=digits:1=90", "--arm", "candidate=digits:2=10")
    run("route", "set", "numbers", *arms)
    run("route", "set", "numbers", "--weight", "candidate=50")
    names = [line.split()[0] for line in run("model", "show", "digits")[1].splitlines()]
    assert "versions[0].version" in names
    (changed,) = (line for line in run("event", "list")[1].splitlines() if "route.changed" in line)
    assert changed.endswith("weights stable 90 → 50 %, candidate 10 → 50 %")


def test_what_cannot_be_is_said_in_a_line(run: Run) -> None:
    status, _, said = run("route", "set", "numbers", "--arm", "stable=digits:9=100")
    assert status == 1
    assert "the arm 'stable' leads nowhere: the model 'digits' has no version 9" in said
    assert "no route 'nobody'" in run("route", "kill", "nobody")[2]


def test_arms_and_rules_are_read_from_one_word() -> None:
    by_version = {"name": "a", "model": "m=n", "version": 3, "weight": 99.5}
    assert arm("a=m=n:3=99.5") == by_version
    assert arm("b=m@best=0.5") == {"name": "b", "model": "m", "alias": "best", "weight": 0.5}
    assert match("x: a=b=arm")["value"] == "a=b"
    for odd in ("a", "a=m=5", "a=m:x=5", "a=m:1=many"):
        with pytest.raises(argparse.ArgumentTypeError):
            arm(odd)


def test_a_route_that_an_experiment_needs_is_changed_by_force_alone(run: Run) -> None:
    arms = ("--arm", "stable=digits:1=50", "--arm", "candidate=digits:2=50")
    assert run("route", "set", "numbers", *arms, "--unit", "header:x-user")[0] == 0
    metric = ("--metric", "bought=proportion:up:0.01")
    assert run("experiment", "create", "colour", "--route", "numbers", *metric)[0] == 0
    assert run("experiment", "start", "colour")[0] == 0
    for words in (("set", "numbers", "--weight", "candidate=10"), ("delete", "numbers")):
        status, _, said = run("route", *words)
        assert (status, "modelyard experiment stop colour" in said) == (1, True)
    weighed = run("route", "set", "numbers", "--weight", "candidate=10", "--force")
    assert weighed == (0, "numbers: stable=digits:1 90 %, candidate=digits:2 10 %\n", "")
    assert json.loads(run("experiment", "show", "colour", "--json")[1])["state"] == "stopped"
    assert run("route", "delete", "numbers")[0] == 0
