"""A process that is killed within a transition: no weight has changed, and it is made again."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from control import crash
from control.rollouts.commands import RolloutCommand
from control.rollouts.state import Transition
from control.sql.database import Database
from support.control import told
from support.control_rollout import (
    NAME,
    alive,
    begun,
    report,
    ticked,
    told_to,
    walked,
    weights,
)

ROOT = Path(__file__).parents[3]


def test_every_transition_is_a_crash_point() -> None:
    assert {f"rollout.{one}" for one in Transition} <= set(crash.POINTS)


KILLED = """
import sys
from control.sql.database import Database
from control.rollouts import service
from control.sql.database import SYSTEM
from support.control_rollout import ROUTES
database = Database(sys.argv[1])
with database.change(SYSTEM) as tx:
    if sys.argv[3]:
        service.command(tx, ROUTES, sys.argv[2], sys.argv[3])
    else:
        service.tick(tx, ROUTES, sys.argv[2])
"""

SLOW = pytest.mark.slow
BEFORE = [
    ("pending", "prewarm", ""),
    pytest.param("prewarm", "mirror", "", marks=SLOW),
    pytest.param("mirror", "step", ""),
    pytest.param("step", "pause", "pause", marks=SLOW),
    pytest.param("paused", "resume", "resume", marks=SLOW),
    pytest.param("step", "abort", "abort", marks=SLOW),
    pytest.param("step", "promote", "promote_full", marks=SLOW),
    pytest.param("promoting", "healthy", "", marks=SLOW),
    pytest.param("aborting", "degrade", "", marks=SLOW),
    pytest.param("degraded", "retry", "retry", marks=SLOW),
]


@pytest.mark.parametrize(("phase", "transition", "command"), BEFORE)
def test_killed_within_a_transition_no_weight_has_changed_and_it_is_made_again(
    database: Database, phase: str, transition: str, command: str
) -> None:
    alive(database, "srv-1", NAME, 1, 2)
    rollout = begun(database)
    bring(database, rollout.id, phase)
    report(database, rollout.id, 100)
    weights_before, events = weights(database), told(database)
    environment = {crash.VARIABLE: f"rollout.{transition}", "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    arguments = [database.engine.url.render_as_string(hide_password=False), rollout.id, command]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], env=environment, timeout=180, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (weights(database), told(database)) == (weights_before, events)
    if command:
        told_to(database, rollout.id, RolloutCommand(command))
    else:
        ticked(database, rollout.id)
    assert told(database)[-1][0] == f"rollout.{transition}"


def bring(database: Database, rollout_id: str, phase: str) -> None:
    if phase in ("paused", "aborting", "degraded"):
        walked(database, rollout_id, "step")
        told_to(
            database,
            rollout_id,
            RolloutCommand.PAUSE if phase == "paused" else RolloutCommand.ABORT,
        )
        if phase == "degraded":
            ticked(database, rollout_id)
    elif phase != "pending":
        walked(database, rollout_id, phase)
