"""Routes on a whole server: a change of weights, the kill switch, the link, a wedged mirror."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control.desired import DesiredArm, DesiredRoute, DesiredState, Mirror
from server.desired import disk
from server.routing.table import HEADER_NAME
from support.routing import route
from support.server import identity_config, running
from support.usage import metric, resident_bytes
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow

PROMISED_S, PATIENCE_S = 1.0, 60.0
BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
)


class Client:
    """One connection that stays."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def arm(self, name: str = "numbers", body: str = BODY, **headers: str) -> str:
        """Which arm answered."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self._line.request("POST", f"/v2/models/{name}/infer", body, named)
        answer = self._line.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return (answer.getheader(HEADER_NAME) or "").partition(";")[2]

    def close(self) -> None:
        self._line.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    write_identity(folder, "digits", 1, 2, config="version_policy { all {} }\n")
    with yard(folder) as y:
        y.wait_versions("digits", 1, 2)
        y.wait_for(lambda: _told_of(y) == {1, 2}, "the control process to hear of them")
        yield y


def _told_of(y: Yard) -> set[int]:
    loads = y.api("GET", "/loads?model=digits")[1]["items"]
    return {one["version"] for one in loads} - {0}


@pytest.fixture
def client(served: Yard) -> Iterator[Client]:
    one = Client(served.server.http_port)
    yield one
    one.close()


def took_s(true: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.01)
    return time.monotonic() - began


def put(y: Yard, stable: float, candidate: float) -> None:
    arms = [
        {"name": "stable", "model": "digits", "version": 1, "weight": stable},
        {"name": "candidate", "model": "digits", "version": 2, "weight": candidate},
    ]
    status, made = y.api("PUT", "/routes/numbers", {"arms": arms, "unit": "header:x-user"})
    assert status == 200, made


def test_a_change_of_weights_and_the_kill_switch_take_effect_within_a_second(
    served: Yard, client: Client
) -> None:
    put(served, 100, 0)
    took_s(lambda: served.server.is_ready("/v2/models/numbers/ready"))
    assert {client.arm(x_user=f"u{n}") for n in range(20)} == {"stable"}
    changes, kills = [], []
    for _ in range(3):  # of which a busy machine may hold up one or the other
        put(served, 0, 100)
        changes.append(took_s(lambda: client.arm(x_user="ada") == "candidate"))
        assert served.api("POST", "/routes/numbers/kill", {})[0] == 200
        kills.append(took_s(lambda: client.arm(x_user="ada") == "stable"))
        assert served.api("DELETE", "/routes/numbers/kill")[0] == 200
        took_s(lambda: client.arm(x_user="ada") == "candidate")
        put(served, 100, 0)
        took_s(lambda: client.arm(x_user="ada") == "stable")
    assert min(changes) < PROMISED_S
    assert min(kills) < PROMISED_S


def test_the_explanation_is_what_happens(served: Yard, client: Client) -> None:
    put(served, 50, 50)
    salt = served.api("GET", "/routes/numbers")[1]["salt"]
    assert salt
    explained = {
        unit: served.api("GET", f"/routes/numbers/explain?unit={unit}")[1]["arm"]
        for unit in (f"u{n}" for n in range(10))
    }
    took_s(lambda: {unit: client.arm(x_user=unit) for unit in explained} == explained)


def test_a_restart_changes_no_weight(served: Yard, client: Client) -> None:
    put(served, 0, 100)
    took_s(lambda: client.arm(x_user="ada") == "candidate")
    served.again()
    again = Client(served.server.http_port)
    assert again.arm(x_user="ada") == "candidate"
    again.close()


def test_a_wedged_mirror_costs_nothing_but_a_dropped_count(tmp_path: Path) -> None:
    for name, delay_ms in (("fast", 0), ("wedged", 600_000)):
        home = tmp_path / "models" / name
        (home / "1").mkdir(parents=True)
        (home / "config.pbtxt").write_text(identity_config(name, delay_ms))
    arms = (
        DesiredArm("stable", "fast", 1, "", 10_000),
        DesiredArm("candidate", "wedged", 1, "", 0),
    )
    mirrored = DesiredRoute("mirrored", arms, "s", "", (), (Mirror("candidate", 10_000),))
    plain = route(("stable", 1, 100), name="plain", model="fast", unit="")
    state = tmp_path / "state"
    state.mkdir()
    disk.keep(state, DesiredState(1, "", routes=(mirrored, plain)))
    body = BODY.replace("[1, 2]", json.dumps([1, 20_000]), 1).replace(
        "[1, 2]", json.dumps([1] * 20_000)
    )
    with running(tmp_path / "models", state_dir=str(state), exit_timeout_secs=0) as server:
        client = Client(server.http_port)
        for _ in range(200):
            assert client.arm("mirrored", body) == "stable"
        before = resident_bytes(server)
        for _ in range(600):
            assert client.arm("mirrored", body) == "stable"
        client.close()
        assert resident_bytes(server) - before < 16 * 2**20
        assert metric(server, "modelyard_mirror_dropped") > 400
        assert metric(server, "modelyard_event_loop_stall_seconds_recent_max") < 10.0
