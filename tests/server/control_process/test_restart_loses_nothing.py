"""Both processes are killed in the middle of a rollout and of series: what was measured stays."""

import os
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from server.series.spool import NAME
from support.rollouts_yard import MODEL, history, serve_versions, started, until
from support.yard import Yard, write_identity, yard
from support.yard_load import INPUTS, eventually, inferring, wait_for_another

pytestmark = pytest.mark.slow

PLAN = {"mirror": 0, "steps": "10,50", "hold": "20s"}
OLD = timedelta(seconds=10)
Rates = dict[tuple[str, datetime], float]
"""Requests a second of each series, by the end of the ten seconds they are of."""


def evidence(y: Yard, name: str) -> list[dict[str, Any]]:
    status, found = y.api("GET", f"/rollouts/{name}/evidence")
    assert status == 200, found
    return list(found["moments"])


def rates(y: Yard, **query: Any) -> Rates:
    until = datetime.now(UTC) + timedelta(minutes=1)
    given = {"since": _text(until - timedelta(minutes=10)), "until": _text(until), "points": 100}
    status, page = y.api(
        "GET", "/series?" + "&".join(f"{k}={v}" for k, v in (given | query).items())
    )
    assert status == 200, page
    step = timedelta(seconds=page["step_s"])
    ends = [datetime.fromisoformat(at) + step for at in page["at"]]
    return {
        (one["name"], end): rate
        for one in page["items"]
        for end, rate in zip(ends, one["requests_per_s"], strict=True)
        if rate
    }


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def older(found: Rates, moment: datetime) -> Rates:
    """Those that were over ten seconds before this moment."""
    return {key: rate for key, rate in found.items() if key[1] <= moment - OLD}


def test_a_rollout_and_its_series_survive_both_processes(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        serve_versions(y, 1, 2)
        with inferring(y, MODEL, clients=2):
            name = started(y, 2, **PLAN)
            until(y, name, "step")
            eventually(lambda: len(rates(y, route=MODEL)) >= 3, "a window of the candidate")
            seen = evidence(y, name)
            before = y.control_pid()
            os.kill(before, signal.SIGKILL)
            wait_for_another(y, before)
            assert evidence(y, name)[: len(seen)] == seen
            seen, measured, killed = evidence(y, name), rates(y, route=MODEL), datetime.now(UTC)
            y.kill()
            y.start()
            assert evidence(y, name)[: len(seen)] == seen
            kept = rates(y, route=MODEL)
            until(y, name, "healthy")
        assert older(measured, killed)
        assert older(measured, killed).items() <= kept.items()
        moves = [one["move"] for one in evidence(y, name) if one["move"]]
        assert moves == [move for move, _ in history(y, name)]
        assert evidence(y, name)[: len(seen)] == seen


def test_what_the_database_did_not_take_survives_the_gateway(tmp_path: Path) -> None:
    write_identity(tmp_path, "identity", 1)
    with yard(tmp_path) as y:
        path = y.state / "modelyard.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as holder:
            holder.execute("BEGIN EXCLUSIVE").close()
            for _ in range(7):
                assert y.server.call("POST", "/v2/models/identity/infer", INPUTS)[0] == 200
            eventually(lambda: list((y.state / NAME).glob("*-*")) != [], "a window on the disk")
            y.kill()
            holder.execute("ROLLBACK").close()
        y.start()
        eventually(lambda: round(10 * sum(rates(y).values())) == 7, f"7 requests: {rates(y)}")
        eventually(lambda: list((y.state / NAME).iterdir()) == [], "nothing on the disk any more")
