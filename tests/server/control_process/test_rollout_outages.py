"""A rollout under way while its server dies beside another one, or its database is away."""

import threading
import time
from pathlib import Path

import pytest

from control.loops.deployer import LEASE_S
from support.control import fresh_url
from support.rollouts_yard import MODEL, check_weights, history, serve_versions, started, until
from support.severed import severable
from support.yard import Yard, yard
from support.yard_load import check_load, eventually, inferring, query

pytestmark = pytest.mark.slow

AWAY_S = 30.0
PLAN = {"mirror": 0, "steps": "10,20,30,40,50,60,70,80,90", "hold": "1s"}
WHOLE = [
    *[("start", 0), ("prewarm", 0), *(("step", weight) for weight in range(10, 100, 10))],
    *[("promote", 100), ("healthy", 100)],
]


def holder(y: Yard) -> str:
    """The server that moves rollouts, by its id."""
    held = "SELECT server.id FROM lease JOIN server ON server.boot = lease.holder"
    rows = query(y, f"{held} WHERE lease.name = 'deployer' AND lease.until > now()")
    return str(rows[0][0]) if rows else ""


def test_the_other_server_takes_over_within_two_lease_periods(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with fresh_url("postgresql", tmp_path) as url:
        shared = {"database": url, "store_dir": str(tmp_path / "store")}
        with yard(tmp_path / "a", None, **shared) as a, yard(tmp_path / "b", None, **shared) as b:
            serve_versions(a, 1, 2)
            b.wait_versions(MODEL, 1, 2, seconds=60)
            eventually(lambda: holder(a) != "", "somebody to hold the lease")
            dying, living = (a, b) if holder(a) in (a.state / "server.json").read_text() else (b, a)
            with inferring(living, MODEL) as load:
                name = started(living, 2, **PLAN)
                until(living, name, "step")
                first = holder(living)
                dying.kill()
                killed = time.monotonic()
                eventually(lambda: holder(living) not in ("", first), "another holder", 90)
                assert time.monotonic() - killed < 2 * LEASE_S
                until(living, name, "healthy")
            check_load(load)
            assert history(living, name) == WHOLE


def test_a_rollout_goes_on_after_the_database_was_away_for_half_a_minute(tmp_path: Path) -> None:
    with (
        fresh_url("postgresql", tmp_path) as url,
        severable(url) as way,
        yard(tmp_path, None, database=way.url) as y,
    ):
        serve_versions(y, 1, 2)
        with inferring(y, MODEL, clients=2) as load:
            name = started(y, 2, **PLAN)
            until(y, name, "step")
            way.cut()
            threading.Event().wait(AWAY_S)
            way.mend()
            until(y, name, "healthy", seconds=180)
        check_load(load)
        check_weights(y, name)
        moves = [move for move in history(y, name) if move[0] not in ("pause", "resume")]
        assert moves == WHOLE
