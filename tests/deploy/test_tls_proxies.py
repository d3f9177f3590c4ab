"""The shipped nginx and Caddy configurations, in front of every port of a real server."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from openai import DefaultHttpxClient, OpenAI
from playwright.sync_api import expect

from support import tls_proxy
from support.browser import PATIENCE_MS, chromium, log_in, page
from support.openai import START_SECS, write_language
from support.server import free_ports, write_identity
from support.tls_proxy import Proxy, TLSProxy
from support.yard import Yard, yard
from support.yard import write_identity as commit_identity

pytestmark = pytest.mark.slow
PASSWORD = "correct horse battery"
PATIENCE_SECS = 60
TOKENS = 200

STEPS = """
import os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            folder = pb_utils.get_input_tensor_by_name(request, "FOLDER").as_numpy()[0].decode()
            sender = request.get_response_sender()
            for step in range(3):
                while not os.path.exists(os.path.join(folder, str(step))):
                    if sender.is_cancelled():
                        break
                    time.sleep(0.005)
                tensor = pb_utils.Tensor("STEP", np.array([step], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""Sends its next response when a file is there, which its client makes after the one before."""

STEPS_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "FOLDER" data_type: TYPE_STRING dims: 1 }
output { name: "STEP" data_type: TYPE_INT32 dims: 1 }
"""


class Front(NamedTuple):
    proxy: TLSProxy
    yard: Yard
    access_log: Path


def by_name(proxy: Proxy) -> str:
    return proxy.__name__


@pytest.fixture(scope="module", params=[tls_proxy.nginx, tls_proxy.caddy], ids=by_name)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    run: Proxy = request.param
    tls_proxy.command_of(run.__name__)
    home = tmp_path_factory.mktemp("yard")
    write_identity(home / "models", "echo")
    write_language(home / "models")
    (home / "models" / "steps" / "1").mkdir(parents=True)
    (home / "models" / "steps" / "1" / "model.py").write_text(STEPS)
    (home / "models" / "steps" / "config.pbtxt").write_text(STEPS_CONFIG)
    (port,) = free_ports(1)
    flags: dict[str, object] = {
        "public_url": f"https://{tls_proxy.CONSOLE}:{port}",
        "trusted_proxies": "127.0.0.1",
        "allowed_hosts": tls_proxy.INFERENCE,
        "access_log": home / "access.log",
    }
    with yard(home, **flags) as running:
        running.server.wait_ready(START_SECS)
        names = ("http_port", "grpc_port", "metrics_port", "admin_port")
        ports = {8000 + n: int(str(running.flags[name])) for n, name in enumerate(names)}
        with run(tmp_path_factory.mktemp("proxy"), port, ports) as proxy:
            yield Front(proxy, running, home / "access.log")


@pytest.fixture
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model `steps` looks; apart, because models do not see beside the state folder."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "0").touch()
    return folder


def test_a_tensor_of_64_megabytes_goes_there_and_back_over_rest(front: Front) -> None:
    sent = np.arange(15_990_000, dtype=np.float32).reshape(1, -1)
    tensor = tritonclient.http.InferInput("INPUT0", sent.shape, "FP32")
    tensor.set_data_from_numpy(sent)
    authority = {"ca_certs": str(front.proxy.authority)}
    with tritonclient.http.InferenceServerClient(
        front.proxy.inference, ssl=True, ssl_options=authority, network_timeout=PATIENCE_SECS
    ) as client:
        assert client.is_server_ready()
        assert np.array_equal(client.infer("echo", [tensor]).as_numpy("OUTPUT0"), sent)


def test_a_body_that_is_too_large_is_refused_in_the_servers_words(front: Front) -> None:
    with closing(front.proxy.connect()) as connection:
        connection.request("POST", "/v2/models/echo/infer", bytes(70_000_000))
        answer = connection.getresponse()
        assert answer.status == 400
        assert "--http-max-input-size" in json.loads(answer.read())["error"]


@pytest.fixture
def grpc(front: Front) -> Iterator[Any]:
    with tritonclient.grpc.InferenceServerClient(
        front.proxy.inference, ssl=True, root_certificates=str(front.proxy.authority)
    ) as client:
        yield client


def test_tensors_go_there_and_back_over_grpc(grpc: Any) -> None:
    sent = np.arange(4_000_000, dtype=np.float32).reshape(1, -1)
    tensor = tritonclient.grpc.InferInput("INPUT0", sent.shape, "FP32")
    tensor.set_data_from_numpy(sent)
    assert grpc.is_server_ready()
    assert np.array_equal(grpc.infer("echo", [tensor]).as_numpy("OUTPUT0"), sent)


def test_responses_of_a_decoupled_model_come_as_they_are_made_over_grpc(
    grpc: Any, steps: Path
) -> None:
    heard: Queue[tuple[Any, Any]] = Queue()
    grpc.start_stream(lambda result, error: heard.put((result, error)))
    tensor = tritonclient.grpc.InferInput("FOLDER", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([str(steps).encode()], np.object_))
    grpc.async_stream_infer("steps", [tensor])
    for step in range(3):
        result, error = heard.get(timeout=PATIENCE_SECS)
        assert error is None
        assert result.as_numpy("STEP").item() == step
        (steps / str(step + 1)).touch()
    grpc.stop_stream()


def test_events_of_a_decoupled_model_come_as_they_are_made_over_rest(
    front: Front, steps: Path
) -> None:
    with closing(front.proxy.connect()) as connection:
        body = json.dumps({"FOLDER": str(steps)})
        connection.request("POST", "/v2/models/steps/generate_stream", body)
        answer = connection.getresponse()
        for step in range(3):
            event = next(line for line in answer if line.startswith(b"data: "))
            assert json.loads(event[6:])["STEP"] == step
            (steps / str(step + 1)).touch()
        assert answer.read().strip() == b""


def test_tokens_come_one_by_one(front: Front) -> None:
    asked = {
        "model": "talker", "prompt": "Once", "stream": True, "max_tokens": TOKENS,
        "ignore_eos": True,
    }  # fmt: skip
    with closing(front.proxy.connect()) as connection:
        connection.request("POST", "/v1/completions", json.dumps(asked))
        answer = connection.getresponse()
        pieces = list(iter(answer.read1, b""))
    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
    assert pieces[0].count(b"data: ") <= 4
    assert len(pieces) > 5  # a proxy on a busy machine passes several on at once


def test_the_stock_openai_client_streams(front: Front) -> None:
    transport = DefaultHttpxClient(verify=front.proxy.context(), timeout=PATIENCE_SECS)
    url = f"https://{front.proxy.inference}/v1"
    with OpenAI(base_url=url, api_key="none", http_client=transport) as client:
        chunks = client.chat.completions.create(
            model="talker", messages=[{"role": "user", "content": "Hello"}], stream=True,
            max_tokens=5,
        )  # fmt: skip
        assert list(chunks)[-1].choices[0].finish_reason in ("length", "stop")


def test_a_client_that_goes_is_noticed_behind_the_proxy(front: Front, steps: Path) -> None:
    before = cancelled(front)
    with closing(front.proxy.connect()) as connection:
        body = json.dumps({"FOLDER": str(steps)})
        connection.request("POST", "/v2/models/steps/generate_stream", body)
        next(line for line in connection.getresponse() if line.startswith(b"data: "))
    front.yard.wait_for(lambda: cancelled(front) > before, "the request to be cancelled")


def cancelled(front: Front) -> int:
    """How many requests to `steps` were, by the server's metrics."""
    server = front.yard.server
    _, text = server.get("/metrics", server.metrics_port)
    name = 'nv_inference_request_failure{model="steps",reason="CANCELED",version="1"} '
    return int(text.decode().partition(name)[2].split("\n")[0])


def test_the_servers_log_names_the_client_and_not_what_it_claims(front: Front) -> None:
    with closing(front.proxy.connect(source="127.0.0.2")) as connection:
        connection.request("GET", "/v2/models/echo", headers={"X-Forwarded-For": "203.0.113.5"})
        assert connection.getresponse().status == 200

    def line() -> list[dict[str, Any]]:
        told = [json.loads(text) for text in front.access_log.read_text().splitlines()]
        return [one for one in told if one["path"] == "/v2/models/echo"]

    front.yard.wait_for(line, "the line")
    assert line()[-1]["client"] == "127.0.0.2"


@pytest.mark.parametrize(("source", "status"), [("127.0.0.1", 200), ("127.0.0.2", 403)])
def test_metrics_are_for_the_addresses_named(front: Front, source: str, status: int) -> None:
    with closing(front.proxy.connect(source)) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == status
        assert (b"nv_inference_count" in answer.read()) is (status == 200)


def test_git_pushes_over_https_and_its_pusher_reads_along(front: Front) -> None:
    work = front.yard.repository("vision")
    commit_identity(work, "pushed", 1)
    big = work / "models" / "pushed" / "1" / "table.txt"
    big.write_text("\n".join(f"{number * 2654435761 % 2**64:x}" for number in range(1_500_000)))
    front.yard.commit(work, "With a large file")
    url = f"{front.proxy.console}/git/vision.git"
    said = front.yard.git(
        work, "-c", f"http.sslCAInfo={front.proxy.authority}", "push", url, "main"
    )
    assert "remote: served: pushed" in said
    front.yard.wait_versions("pushed", 1)


def test_the_console_is_live(front: Front) -> None:
    name = f"ada{time.monotonic_ns()}"
    body = {"name": name, "role": "operator", "password": PASSWORD}
    assert front.yard.api("POST", "/users", body)[0] == 201
    with chromium() as browser, page(browser, trusting=True) as tab:
        log_in(tab, front.proxy.console, name, PASSWORD)
        assert [cookie["secure"] for cookie in tab.context.cookies()] == [True]
        tab.click("nav >> text=Models")
        expect(tab.locator("#live-state")).to_contain_text("live", timeout=PATIENCE_MS)
        tab.evaluate("window.stayed = true")
        write_identity(front.yard.folder / "models", "late")
        expect(tab.locator("main >> text=late").first).to_be_visible(timeout=PATIENCE_MS)
        assert tab.evaluate("window.stayed")


def test_a_page_of_another_site_changes_nothing(front: Front) -> None:
    host = front.proxy.console.removeprefix("https://")
    for origin, status in ((front.proxy.console, 401), ("https://evil.example", 403)):
        # A proxy may close a connection whose body was refused unread: each has its own.
        connection = http.client.HTTPSConnection(
            "127.0.0.1", front.proxy.port, timeout=60, context=_unchecked(front)
        )
        with closing(connection):
            connection.request("POST", "/api/v1/users", "{}", {"Host": host, "Origin": origin})
            assert connection.getresponse().status == status


def _unchecked(front: Front) -> Any:
    context = front.proxy.context()
    context.check_hostname = False
    return context
