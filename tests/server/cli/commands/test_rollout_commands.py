"""`modelyard rollout …` as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from control.clock import utc_now
from control.rollouts import service
from control.rollouts.route_weights import RolloutRoutes
from control.sql.database import SYSTEM
from control.views import EventView
from server.cli import main as cli
from server.cli.commands.rollouts import event_line
from support.admin import Api
from support.deployed import deploy

Run = Any


@pytest.fixture
def run(
    running: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command where `digits` 1 and 2 are deployed; (exit status, stdout, stderr)."""
    deploy(running.database)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELYARD_STATE_DIR", "state")
    monkeypatch.setenv("TZ", "UTC")

    def one(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return one


def moved(running: Api, rollout: str) -> None:
    """The controller has looked once."""
    with running.database.change(SYSTEM) as tx:
        service.tick(tx, RolloutRoutes(), rollout)


@pytest.fixture
def begun(run: Run) -> str:
    """Version 2 is to take over the name from version 1; the rollout's id."""
    assert run("route", "set", "digits", "--arm", "stable=digits:1=100")[0] == 0
    plan = ("--plan", "steps=10, 50", "--plan", "rollout.hold=2m")
    made = run("rollout", "start", "digits", "2", *plan, "--json")
    assert made[0] == 0, made
    return str(json.loads(made[1])["id"])


def test_a_rollout_is_begun_by_hand_and_told_what_to_do(run: Run, running: Api, begun: str) -> None:
    shown = json.loads(run("rollout", "show", "digits", "--json")[1])
    assert (shown["id"], shown["phase"]) == (begun, "pending")
    assert [step["weight"] for step in shown["plan"]["steps"]] == [10, 50, 100]
    assert shown["standing"]["arms"]["candidate"]["requests"] == 0
    moved(running, begun)
    assert run("rollout", "pause", begun)[1].startswith("rollout of digits version 2 paused")
    assert "paused (manual)" in run("rollout", "list", "--name", "digits")[1]
    assert "resumed" in run("rollout", "resume", begun)[1]
    assert "rolled back" in run("rollout", "abort", "digits")[1]
    status, _, said = run("rollout", "retry", begun)
    assert (status, "only one that was rolled back can be retried" in said) == (1, True)


def test_a_rollout_is_followed_to_its_end_and_fails_when_it_was_rolled_back(
    run: Run, running: Api, begun: str
) -> None:
    run("rollout", "abort", begun)
    moved(running, begun)
    status, said, why = run("rollout", "follow", "digits")
    kinds = [line.split()[3] for line in said.splitlines()]
    assert (status, kinds) == (1, ["start", "abort", "degrade"])
    assert "the rollout of digits version 2 is degraded" in why


def test_a_key_that_is_no_plan_s_is_refused_by_name(run: Run) -> None:
    run("route", "set", "digits", "--arm", "stable=digits:1=100")
    status, _, said = run("rollout", "start", "digits", "2", "--plan", "stepz=1")
    assert (status, "stepz" in said) == (1, True)


def test_an_event_is_a_line_in_words() -> None:
    words = {"words": "step 1 of 2: 10 % of the traffic"}
    event = EventView(1, utc_now(), "rollout.step", "rollout:r1", "system", words)
    assert event_line(event).endswith("step       step 1 of 2: 10 % of the traffic")
