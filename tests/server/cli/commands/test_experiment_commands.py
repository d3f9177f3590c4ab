"""`modelyard experiment …` as a person runs it."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from server.cli import main as cli
from server.cli.commands.experiments import metric
from support.admin import Api
from support.deployed import deploy

Run = Any
CONVERSION = "conversion=proportion:up:0.01"


@pytest.fixture
def run(
    running: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command where the route `shop` has two arms; (exit status, stdout, stderr)."""
    deploy(running.database)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELYARD_STATE_DIR", "state")

    def one(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    arms = ("--arm", "a=digits:1=50", "--arm", "b=digits:2=50")
    assert one("route", "set", "shop", *arms, "--unit", "header:x-user")[0] == 0
    return one


def test_an_experiment_is_planned_started_looked_at_stopped_and_concluded(run: Run) -> None:
    made = run("experiment", "create", "colour", "--route", "shop", "--metric", CONVERSION)
    assert "experiment colour on shop planned" in made[1]
    assert run("experiment", "start", "colour")[1] == "experiment colour is running\n"
    shown = json.loads(run("experiment", "show", "colour", "--json")[1])
    assert [(arm["name"], arm["version"]) for arm in shown["arms"]] == [("a", 1), ("b", 2)]
    said = run("experiment", "analysis", "colour")[1].splitlines()
    assert said[0] == "Nobody has seen the experiment yet."
    assert run("experiment", "series", "colour", "conversion", "b")[0] == 0
    assert run("experiment", "stop", "colour")[0] == 0
    ended = run("experiment", "conclude", "colour", "keep a")
    assert ended == (0, "experiment colour concluded: keep a\n", "")
    assert "keep a" in run("experiment", "list", "--state", "concluded")[1]


def test_an_experiment_that_cannot_be_is_refused_with_what_is_missing(run: Run) -> None:
    create = ("experiment", "create", "colour", "--metric", CONVERSION, "--route")
    status, _, said = run(*create, "nothing")
    assert (status, "there is no route 'nothing'" in said) == (1, True)
    run("route", "set", "shop", "--unit", "")
    assert run(*create, "shop")[0] == 0
    status, _, said = run("experiment", "start", "colour")
    assert (status, "give it a unit first" in said) == (1, True)
    assert run("experiment", "delete", "colour") == (0, "experiment colour deleted\n", "")


def test_terms_come_from_a_file(run: Run, tmp_path: Path) -> None:
    arms = [{"name": "a"}, {"name": "c"}]
    (tmp_path / "terms.json").write_text(
        json.dumps({"arms": arms, "metrics": [metric(CONVERSION)]})
    )
    status, _, said = run(
        "experiment", "create", "colour", "--route", "shop", "--terms", "terms.json"
    )
    assert (status, "has no arm 'c'; it has a, b" in said) == (1, True)


@pytest.mark.parametrize("text", ["conversion", "a=mean:up", "a=mean:up:much", "a=mean:up:1:2:3"])
def test_a_metric_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no metric"):
        metric(text)
