"""A whole server and a real receiver: what happens arrives once, signed, whatever dies."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control import crash
from support.rollouts_yard import serve_versions, started, until
from support.server import free_ports
from support.webhook_receiver import Posted, Receiver, receiver
from support.yard import Yard, yard
from support.yard_load import wait_for_another

PLAN = {"mirror": 0, "steps": "25", "hold": 600}
BROKEN = 'backend: "onnxruntime"\nmax_batch_size: 8\n'


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def hooked(y: Yard, url: str, *terms: str) -> str:
    """A webhook by the command line; the secret that it prints."""
    return y.cli("webhook", "create", "on-call", url, *terms).splitlines()[-1]


def signed_by(secret: str, message: Posted) -> bool:
    parts = message.id, message.headers["webhook-timestamp"]
    signed = ".".join(parts).encode() + b"." + message.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    right = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return message.headers["webhook-signature"] == f"v1,{right}"


def break_a_model(y: Yard, name: str = "captions") -> None:
    folder = y.folder / "models" / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(b"not an onnx file")
    (folder / "config.pbtxt").write_text(f'name: "{name}"\n{BROKEN}')


def is_settled(y: Yard, count: int = 1) -> Callable[[], bool]:
    def settled() -> bool:
        found = y.api("GET", "/deliveries")[1]["items"]
        return len(found) == count and all(one["state"] == "delivered" for one in found)

    return settled


def test_a_rollback_arrives_once_with_a_right_signature(tmp_path: Path, there: Receiver) -> None:
    with yard(tmp_path, notification_allow=[there.prefix]) as y:
        serve_versions(y, 1, 2)
        secret = hooked(y, there.url, "--kind", "rollout.rolled_back")
        name = started(y, 2, **PLAN)
        until(y, name, "step")
        y.cli("rollout", "abort", name)
        (message,) = there.wait(1)
        y.wait_for(is_settled(y), "the message to be settled")
        until(y, name, "degraded")
        shown = json.loads(y.cli("delivery", "list", "--json"))
    assert len(there.messages) == 1
    assert signed_by(secret, message)
    said = message.json
    assert (said["type"], said["data"]["models"]) == ("rollout.rolled_back", ["m"])
    assert said["data"]["title"] == "m rolled back from version 2 to version 1"
    assert said["data"]["url"] == f"http://127.0.0.1:{y.admin_port}/rollouts/{name}"
    assert [(one["id"], one["attempts"]) for one in shown] == [(message.id, 1)]


@pytest.mark.slow
def test_a_receiver_that_is_down_for_a_while_gets_its_message_later(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/hook"
    with yard(tmp_path, notification_allow=[f"http://127.0.0.1:{port}/"]) as y:
        hooked(y, url)
        break_a_model(y)

        def failing() -> bool:
            return bool(y.api("GET", "/webhooks/on-call")[1]["failures"])

        y.wait_for(failing, "a try to fail")
        told = y.api("GET", "/webhooks/on-call")[1]
        assert told["last_error"].startswith("the connection failed: ")
        assert told["waiting"] == 1
        with receiver(port) as there:
            (message,) = there.wait(1)
            y.wait_for(is_settled(y), "the message to be settled")
    assert message.json["data"]["models"] == ["captions"]
    assert len(there.messages) == 1


@pytest.mark.parametrize(
    ("point", "tries"),
    [pytest.param("notification.claimed", 1, marks=pytest.mark.slow), ("notification.sent", 2)],
)
def test_a_control_process_that_is_killed_while_it_sends_loses_nothing(
    tmp_path: Path, there: Receiver, point: str, tries: int
) -> None:
    """Killed before the POST it is sent once, killed after it once more, with the same id."""
    trigger = tmp_path / "crash"
    environment = {crash.VARIABLE: f"@{trigger}"}
    with yard(tmp_path, environment, notification_allow=[there.prefix]) as y:
        secret = hooked(y, there.url)
        trigger.write_text(point)
        pid = y.control_pid()
        break_a_model(y)
        wait_for_another(y, pid)
        assert not trigger.exists()
        there.wait(tries)
        y.wait_for(is_settled(y), "the message to be settled")
        (row,) = y.api("GET", "/deliveries")[1]["items"]
    assert [message.id for message in there.messages] == [row["id"]] * tries
    assert row["attempts"] == 2
    assert all(signed_by(secret, message) for message in there.messages)


@pytest.mark.slow
def test_a_private_address_is_refused_by_default(tmp_path: Path, there: Receiver) -> None:
    with yard(tmp_path) as y:
        refused = y.cli("webhook", "create", "inside", "https://10.0.0.1/x", ok=False)
        assert "leads to an address that is private" in refused
        assert "--notification-allow" in refused
        hooked(y, f"https://localhost:{there.port}/hook")
        refused = y.cli("webhook", "test", "on-call", ok=False)
        assert "leads to an address that is loopback" in refused
    assert there.messages == []


def test_the_test_message_of_the_command_line_shows_the_answer(
    tmp_path: Path, there: Receiver
) -> None:
    with yard(tmp_path, notification_allow=[there.prefix]) as y:
        secret = y.cli("webhook", "create", "on-call", "-", stdin=f"{there.url}\n").splitlines()[-1]
        said = y.cli("webhook", "test", "on-call")
        assert "accepted with 200" in said
        assert there.url not in y.cli("webhook", "list")
        y.cli("mute", "create", "captions", "--for", "1h", "--note", "known")
        break_a_model(y)
        break_a_model(y, "labels")
        there.wait(2)
        y.wait_for(is_settled(y), "the message to be settled")
    first, second = there.messages
    assert first.json["type"] == "test"
    assert second.json["data"]["models"] == ["labels"]
    assert signed_by(secret, first)
    assert signed_by(secret, second)
