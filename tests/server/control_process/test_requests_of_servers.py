"""Two servers on one PostgreSQL: whichever is asked tells which of both served a request."""

import http.client
import os
import signal
from pathlib import Path

import pytest

from support.control import fresh_url
from support.yard import Yard, write_identity, yard
from support.yard_load import eventually

BODY = b'{"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}'


def infer(y: Yard) -> str:
    """The id of a request that this server has served."""
    connection = http.client.HTTPConnection(y.server.http, timeout=60)
    try:
        connection.request("POST", "/v2/models/m/infer", BODY)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer.headers["x-request-id"]
    finally:
        connection.close()


@pytest.mark.slow
def test_any_of_two_servers_tells_who_answered(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with fresh_url("postgresql", tmp_path) as url:
        shared = {"database": url, "store_dir": str(tmp_path / "store")}
        with yard(tmp_path / "a", **shared) as a, yard(tmp_path / "b", **shared) as b:
            work = a.repository("vision")
            write_identity(work, "m", 1)
            a.commit(work, "version 1")
            a.push(work)
            b.wait_versions("m", 1)
            ids = {infer(a): "a", infer(b): "b"}
            for y in (a, b):
                for request in ids:
                    status, found = y.api("GET", f"/requests?id={request}")
                    assert (status, len(found["items"]), found["silent"]) == (200, 1, [])
                    assert len(found["servers"]) == 2
            os.kill(b.control_pid(), signal.SIGSTOP)
            try:
                ours, theirs = (a.cli("request", one, ok=ids[one] == "a") for one in ids)
            finally:
                os.kill(b.control_pid(), signal.SIGCONT)
            assert "no answer of the server" in theirs
            assert next(iter(ids)) in ours
            eventually(lambda: a.api("GET", "/requests")[1]["silent"] == [], "both answer again")
