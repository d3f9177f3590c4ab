"""Connections of models in the sandbox: to servers, to the control process, to nobody."""

from pathlib import Path

import pytest

from control.gateways.messages import Hello
from control.gateways.wire import pack_frame
from repository.sandbox.enter import kernel
from support.sandbox import answer, write_prober
from support.web_server import web_server
from support.yard import Yard, yard

pytestmark = pytest.mark.skipif(
    kernel().landlock_abi < 6 or not kernel().seccomp, reason="needs Landlock (ABI 6) and seccomp"
)


_FETCH = "import urllib.request as r; return r.urlopen({url!r}).read()"
_DATAGRAM = "import socket; return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)"
_ASKING = 'parameters { key: "network" value { string_value: "true" } }'


@pytest.mark.slow
def test_a_pushed_model_connects_only_where_its_repository_and_its_config_say_so(
    tmp_path: Path,
) -> None:
    with web_server() as url, yard(tmp_path) as y:
        work = y.repository("vision", formats=["python", "config"])
        probes = {"fetch": _FETCH.format(url=url), "datagram": _DATAGRAM}
        write_prober(work / "models", "asking", _ASKING, **probes)
        write_prober(work / "models", "silent", **probes)
        y.commit(work, "two models")
        y.push(work)
        y.wait_versions("asking", 1)
        y.wait_versions("silent", 1)
        for model in ("asking", "silent"):
            for probe in probes:
                assert answer(y.server, model, probe).startswith("refused"), (model, probe)
        assert _sandbox(y, "asking") == "default, no network"
        y.cli("repo", "change", "vision", "--network", "true")
        y.wait_for(
            lambda: _sandbox(y, "asking") == "default, may use the network", "the permission"
        )
        assert answer(y.server, "asking", "fetch") == "ok: b'hello'"
        assert answer(y.server, "silent", "fetch").startswith("refused")
        y.cli("repo", "change", "vision", "--network", "false")
        y.wait_for(lambda: _sandbox(y, "asking") == "default, no network", "the permission's end")
        assert answer(y.server, "asking", "fetch").startswith("refused")


def _sandbox(y: Yard, model: str) -> str:
    _, found = y.api("GET", "/instances")
    return next((row["sandbox"] for row in found["items"] if row["model"] == model), "")


_CALL = """
    import http.client, socket
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect({path!r})
    connection.request("GET", "/api/v1/tokens")
    answer = connection.getresponse()
    if answer.status != 200:
        raise PermissionError(answer.status, answer.read())
    return answer.read()
"""
_SPEAK = """
    import socket
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect({path!r})
        link.sendall({said!r})
        if not (heard := link.recv(1 << 16)):
            raise PermissionError("hung up")
        return heard
"""
_LOCAL = """
    import urllib.request as r
    return r.urlopen("http://127.0.0.1:{port}/api/v1/tokens").read()
"""


@pytest.mark.slow
def test_a_model_gets_nothing_from_the_control_process(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        sockets = y.sockets()
        hello = pack_frame(Hello("thief"))
        hook = b'{"hook": "pre-receive"}\n'
        probes = {
            "api": _CALL.format(path=str(sockets / "api.sock")),
            "link": _SPEAK.format(path=str(sockets / "link.sock"), said=hello),
            "hook": _SPEAK.format(path=str(sockets / "hook.sock"), said=hook),
            "port": _LOCAL.format(port=y.admin_port),
        }
        write_prober(tmp_path / "models", "curious", **probes)
        y.wait_versions("curious", 1)
        said = {probe: answer(y.server, "curious", probe) for probe in probes}
        assert y.api("GET", "/tokens")[0] == 200
    assert {probe: text for probe, text in said.items() if text.startswith("ok")} == {}
    assert "401" in said["api"], said
    assert any(word in said["link"] for word in ("hung up", "BrokenPipe")), said
