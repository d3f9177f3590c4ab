"""`modelyard route …` as a person runs it."""

import argparse
import json
from typing import Any

import pytest

from admin_support import Api
from deployed_support import deploy
from server import cli
from server.commands.routes import arm, match

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


def test_a_route_is_set_weighed_killed_explained_and_deleted(run: Run) -> None:
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
    assert "all of numbers goes to stable" in run("route", "kill", "numbers")[1]
    assert "goes to candidate" in run("route", "kill", "numbers", "candidate")[1]
    assert run("route", "unkill", "numbers")[0] == 0
    assert run("route", "set", "numbers", "--no-rules")[0] == 0
    assert json.loads(run("route", "show", "numbers", "--json")[1])["mirrors"] == []
    assert run("route", "delete", "numbers") == (0, "route numbers deleted\n", "")
    assert json.loads(run("route", "list", "--json")[1]) == []


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
