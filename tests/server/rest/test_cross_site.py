"""Web pages of other sites on the ports of REST and metrics, against a real server."""

import http.client
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton

from server.settings.sources import read_settings
from server.settings.table import SettingsError
from support.http import INFER, ask, infer_body
from support.server import ROOT, Server, running, write_identity

EVIL = "https://evil.example"
FRIEND = "https://app.example"
SIMPLE = (
    'name: "simple"\nbackend: "identity"\nmax_batch_size: 8\n'
    'input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }\n'
    'input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }\n'
    'output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }\n'
    'output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 }\n'
)
WRITES = [
    INFER,
    "/v2/models/echo/versions/1/infer",
    "/v2/models/echo/generate",
    "/v2/models/echo/generate_stream",
    "/v2/models/echo/feedback",
    "/v2/repository/index",
    "/v2/repository/models/echo/load",
    "/v2/repository/models/echo/unload",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/echo/trace/setting",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/cudasharedmemory/region/r/unregister",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/tokenize",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    write_identity(folder, "echo")
    write_identity(folder, "simple", config=SIMPLE)
    with running(folder, http_cors_allow_origin=FRIEND, allowed_hosts=["models.example"]) as one:
        yield one


def _of_metrics(server: Server) -> Server:
    return replace(server, http_port=server.metrics_port)


@pytest.mark.parametrize("path", WRITES)
def test_another_sites_page_writes_nothing(server: Server, path: str) -> None:
    for headers in ({"origin": EVIL}, {"sec_fetch_site": "cross-site"}):
        answer = ask(server, "POST", path, infer_body(), **headers)
        assert answer.status == 403, answer
        assert b"--http-cors-allow-origin" in answer.body


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
def test_the_metrics_port_refuses_it_as_well(server: Server, verb: str) -> None:
    answer = ask(_of_metrics(server), verb, "/metrics", origin=EVIL)
    assert answer.status == 403


@pytest.mark.parametrize("path", [INFER, "/v2", "/metrics"])
def test_a_name_that_is_rebound_to_this_machine_is_not_answered(server: Server, path: str) -> None:
    verb = "POST" if path == INFER else "GET"
    at = _of_metrics(server) if path == "/metrics" else server
    answer = ask(at, verb, path, infer_body(), host="evil.example:8000")
    assert answer.status == 421
    assert "evil.example" in answer.error
    assert "--allowed-hosts" in answer.error
    assert ask(at, verb, path, infer_body(), host="models.example").status == 200


def test_the_host_of_a_target_in_absolute_form_counts(server: Server) -> None:
    assert ask(server, "POST", f"http://evil.example{INFER}", infer_body()).status == 421
    assert ask(server, "POST", f"http://localhost:1{INFER}", infer_body()).status == 200


def test_a_connection_that_was_trusted_once_is_looked_at_again(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    statuses = []
    for headers in ({}, {"Origin": EVIL}, {}, {"Host": "evil.example"}, {}):
        connection.request("POST", INFER, infer_body(), headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [200, 403, 200, 421, 200]


def test_a_page_of_an_allowed_origin_asks_first_then_infers_and_reads(server: Server) -> None:
    asked = ask(
        server,
        "OPTIONS",
        INFER,
        origin=FRIEND,
        access_control_request_method="POST",
        access_control_request_headers="authorization,inference-header-content-length",
    )
    assert asked.status == 200
    assert asked.headers["access-control-allow-origin"] == FRIEND
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    for path in (INFER, "/v2/models/echo/generate", "/v2/nothing"):
        answer = ask(server, "POST", path, infer_body(), origin=FRIEND, sec_fetch_site="cross-site")
        assert answer.status != 403
        assert answer.headers["access-control-allow-origin"] == FRIEND
        assert "inference-header" in answer.headers["access-control-expose-headers"].lower()
        assert "Origin" in answer.headers["vary"]


def test_a_page_of_another_origin_may_not_even_ask(server: Server) -> None:
    answer = ask(server, "OPTIONS", INFER, origin=EVIL, access_control_request_method="POST")
    assert answer.status == 400
    assert "access-control-allow-origin" not in answer.headers


def test_form_types_are_refused_only_beside_a_browsers_header(server: Server) -> None:
    form = {"content_type": "application/x-www-form-urlencoded"}
    assert ask(server, "POST", INFER, infer_body(), **form).status == 200
    assert ask(server, "POST", INFER, infer_body(), sec_fetch_mode="cors", **form).status == 403
    assert ask(server, "POST", INFER, infer_body(), sec_fetch_mode="cors").status == 200


def test_every_curl_line_of_the_readme_is_let_through(server: Server) -> None:
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^curl (?:[^\n']|'[^']*')*", text, re.MULTILINE)
    assert lines, "the README shows no curl any more"
    for line in lines:
        line = line.partition("  #")[0].replace("localhost:8000", server.http)
        done = subprocess.run(
            [*shlex.split(line), "-o", "/dev/null", "-w", "%{http_code}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout in ("200", "404"), line  # no language model is served here


def test_the_stock_client_is_let_through(server: Server) -> None:
    for address in (server.http, server.http.replace("127.0.0.1", "localhost")):
        client = triton.InferenceServerClient(address)
        given = triton.InferInput("INPUT0", [1, 2], "FP32")
        given.set_data_from_numpy(np.ones((1, 2), np.float32))
        answer = client.infer("echo", [given]).as_numpy("OUTPUT0")
        assert answer is not None
        assert answer.tolist() == [[1.0, 1.0]]
        assert client.get_log_settings()
        client.close()


def test_a_unix_socket_takes_any_host_and_still_no_foreign_page(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_identity(repository, "echo")
    path = tmp_path / "http.sock"
    settings = {"http_address": f"unix:{path}", "allow_grpc": False}
    with running(repository, wait=False, **settings) as server:
        server.wait_for(path.exists, "the socket")
        url = f"http://any.name{INFER}"
        curl = ["curl", "-s", "--unix-socket", str(path), "-o", "/dev/null", "-w", "%{http_code}"]
        curl += ["--retry", "20", "--retry-all-errors", "-d", infer_body().decode()]

        def status(*more: str) -> str:
            return subprocess.run(
                [*curl, *more, url], capture_output=True, text=True, timeout=60, check=True
            ).stdout

        server.wait_for(lambda: status() == "200", "the model")
        assert status("-H", f"Origin: {EVIL}") == "403"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("http_cors_allow_origin", "evil.example"),
        ("http_cors_allow_origin", "https://evil.example/page"),
        ("http_cors_allow_origin", "null"),
        ("allowed_hosts", "models.example:80"),
        ("allowed_hosts", "http://models.example"),
    ],
)
def test_what_is_no_origin_and_no_host_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(text)):
        read_settings({name: [text]}, {}, tmp_path)
