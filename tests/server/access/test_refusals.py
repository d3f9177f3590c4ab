"""What a refused client gets to read, and what is not read of it; who asked, where that is told."""

import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from server.rest.protocol import READ_ON_BYTES
from support.access import PATIENCE_S, Gated, gated, grant
from support.http import INFER, infer_body

HUGE = 64 * 2**20
PUSHER = grant("pusher", "operator", "push:zoo:*")
GENERATE = "/v2/models/echo/generate"


@pytest.fixture(scope="module")
def listeners() -> Iterator[Gated]:
    with gated(True, grant("good"), grant("narrow", "viewer", "infer:other"), PUSHER) as opened:
        yield opened


def wait_for(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.005)


def head(path: str, token: str, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_to_end(line: socket.socket) -> bytes:
    found = b""
    while chunk := line.recv(65536):
        found += chunk
    return found


@pytest.mark.parametrize("path", [INFER, GENERATE, "/v2/repository/models/echo/load"])
@pytest.mark.parametrize(
    "body", [f"Content-Length: {HUGE}", f"Content-Length: {HUGE}\r\nExpect: 100-continue"]
)
def test_a_refused_request_is_answered_before_its_long_body_and_the_connection_closed(
    listeners: Gated, path: str, body: str
) -> None:
    with socket.create_connection(("127.0.0.1", listeners.http_port), timeout=60) as line:
        line.sendall(head(path, "wrong", body))
        answer = read_to_end(line)
    assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert b"www-authenticate: bearer" in answer.lower()
    assert b"connection: close" in answer.lower()
    assert answer.endswith(b'{"error":"this token is unknown, revoked or expired"}')


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
@pytest.mark.parametrize(("token", "status"), [("wrong", 401), ("pusher", 403)])
def test_nothing_is_kept_of_a_body_for_openai_whose_sender_no_model_would_answer(
    listeners: Gated, path: str, token: str, status: int
) -> None:
    """A compressed one was read to its end and inflated before anybody was asked who it was."""
    for coding in ("identity", "gzip"):
        length = f"Content-Length: {HUGE}"
        sent = head(path, token, length, f"Content-Encoding: {coding}", "X-Request-Id: mine")
        with socket.create_connection(("127.0.0.1", listeners.http_port), timeout=60) as line:
            line.sendall(sent)
            answer = read_to_end(line).lower()
        assert answer.startswith(b"http/1.1 %d " % status)
        assert b"connection: close" in answer
        assert b"x-request-id: mine" in answer
        assert b'"type":"invalid_request_error"' in answer


def test_a_refused_body_of_chunks_is_not_read_on_for_ever(listeners: Gated) -> None:
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with socket.create_connection(("127.0.0.1", listeners.http_port), timeout=60) as line:
        line.sendall(head(INFER, "wrong", "Transfer-Encoding: chunked"))
        for _ in range(READ_ON_BYTES // 0x10000):
            line.sendall(chunk)
        line.sendall(b"1\r\nx\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 401 ")
        assert line.recv(65536) == b""


def test_a_connection_lasts_over_refusals_of_short_requests(listeners: Gated) -> None:
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    for token, status in (("wrong", 401), ("narrow", 403), ("good", 200), ("wrong", 401)):
        line.request("POST", INFER, infer_body(), {"Authorization": f"Bearer {token}"})
        response = line.getresponse()
        assert (response.status, response.will_close) == (status, False)
        response.read()
    line.close()


def test_a_pipelined_request_is_judged_by_its_own_token(listeners: Gated) -> None:
    body = infer_body()
    one = f"Content-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", listeners.http_port), timeout=60) as line:
        last = head(INFER, "good", one, "Connection: close")
        line.sendall(b"".join((head(INFER, "good", one), body, head(INFER, "narrow", one), body)))
        line.sendall(last + body)
        answers = read_to_end(line)
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]


def test_a_refused_grpc_call_is_answered_before_any_message(listeners: Gated) -> None:
    never = threading.Event()

    def silent() -> Iterator[bytes]:
        never.wait(PATIENCE_S)
        yield from ()

    with grpc.insecure_channel(listeners.grpc) as channel:
        for method in ("ModelInfer", "ModelStreamInfer", "RepositoryModelLoad"):
            call: Any = channel.stream_unary(f"/inference.GRPCInferenceService/{method}")
            with pytest.raises(grpc.RpcError) as caught:
                call(silent(), metadata=[("authorization", "Bearer wrong")], timeout=60)
            assert isinstance(caught.value, grpc.Call)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert caught.value.details() == "this token is unknown, revoked or expired"
        never.set()


def infer(listeners: Gated, token: str, model: str = "echo") -> grpc.Call | None:
    """The error of one ModelInfer."""
    message = pb.ModelInferRequest(model_name=model, raw_input_contents=[bytes(4)])
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 1])
    with grpc.insecure_channel(listeners.grpc) as channel:
        call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        metadata = [("authorization", f"Bearer {token}")]
        asked = call.future(message.SerializeToString(), metadata=metadata, timeout=60)
        found: grpc.Call | None = asked.exception()
        return found


def of_rest(listeners: Gated, token: str, path: str = INFER) -> http.client.HTTPResponse:
    line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
    body = b'{"INPUT0": 1}' if "generate" in path else infer_body()
    line.request("POST", path, body, {"Authorization": f"Bearer {token}"})
    response = line.getresponse()
    response.read()
    line.close()
    return response


def test_a_token_over_its_rate_hears_when_to_come_back() -> None:
    rate = {"rate_per_s": 0.01, "burst": 3}
    with gated(False, grant("slow", **rate), grant("slower", **rate)) as listeners:
        for path in (INFER, GENERATE, INFER):
            assert of_rest(listeners, "slow", path).status == 200
        for path in (INFER, GENERATE):
            refused = of_rest(listeners, "slow", path)
            assert refused.status == 429
            assert 50 < int(refused.getheader("Retry-After") or 0) <= 100
        error = infer(listeners, "slow")
        assert error is not None
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert 50 < int(dict(error.trailing_metadata())["retry-after"]) <= 100
        assert [infer(listeners, "slower") for _ in range(3)] == [None] * 3
        assert of_rest(listeners, "slower").status == 429
        assert of_rest(listeners, "unknown").status == 200


def test_a_known_message_of_grpc_is_judged_like_a_new_one() -> None:
    with gated(False, grant("good"), grant("narrow", "viewer", "infer:other")) as listeners:
        for _ in range(3):
            assert infer(listeners, "good") is None
            error = infer(listeners, "narrow")
            assert error is not None
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED


class Stream:
    """One open ModelStreamInfer."""

    def __init__(self, client: triton.InferenceServerClient, token: str) -> None:
        self._client = client
        self._told: queue.Queue[Any] = queue.Queue()
        headers = {"authorization": f"Bearer {token}"}
        client.start_stream(lambda result, error: self._told.put(error), headers=headers)

    def infer(self, model: str = "echo") -> str:
        """The error a message gets, or nothing."""
        asked = triton.InferInput("INPUT0", [1, 1], "FP32")
        asked.set_data_from_numpy(np.ones((1, 1), np.float32))
        self._client.async_stream_infer(model, [asked])
        return str(self._told.get(timeout=PATIENCE_S) or "")


def test_each_message_of_a_stream_is_judged_by_its_model_and_what_the_token_is_by_then() -> None:
    terms = grant("one", "viewer", "infer:echo", rate_per_s=0.01, burst=4)
    with gated(True, terms) as listeners, triton.InferenceServerClient(listeners.grpc) as client:
        stream = Stream(client, "one")
        assert stream.infer() == ""
        assert "lacks the scope infer:other" in stream.infer("other")
        assert stream.infer() == ""
        assert stream.infer() == ""
        assert "may send 0.01 requests a second" in stream.infer()
        listeners.use(grant("one", "viewer", "infer:echo"))
        assert stream.infer() == ""
        listeners.use(grant("one", "viewer", "infer:echo", expires=1.0))
        assert "has expired" in stream.infer()
        listeners.use()
        assert "was revoked" in stream.infer()
        client.stop_stream()
        with pytest.raises(InferenceServerException, match="unknown, revoked or expired"):
            client.get_server_metadata(headers={"authorization": "Bearer one"})


def test_an_alias_takes_what_its_model_takes_and_no_other_model_hides_behind_one() -> None:
    grants = grant("echoes", "viewer", "infer:echo"), grant("others", "viewer", "infer:other")
    aliases = {"echo": {"champion": 1}}
    odd = "other@hidden"
    with gated(True, *grants, aliases=aliases, models=("echo", odd)) as listeners:
        for path in ("/v2/models/echo@champion/infer", "/v2/models/echo%40champion/generate"):
            assert of_rest(listeners, "echoes", path).status == 200
            assert of_rest(listeners, "others", path).status == 403
        assert of_rest(listeners, "others", f"/v2/models/{odd}/infer").status == 403
        assert infer(listeners, "echoes", "echo@champion") is None
        for token, model in (("others", "echo@champion"), ("others", odd)):
            error = infer(listeners, token, model)
            assert error is not None
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED


def test_requests_carry_who_asked_on_every_way_in() -> None:
    with (
        gated(False, grant("good")) as listeners,
        triton.InferenceServerClient(listeners.grpc) as client,
    ):
        for token in ("good", "unknown"):
            for path in (INFER, GENERATE, "/v2/models/echo/generate_stream"):
                assert of_rest(listeners, token, path).status == 200
            for _ in range(2):
                assert infer(listeners, token) is None
            assert Stream(client, token).infer() == ""
            client.stop_stream()
        assert listeners.dataplane.asked_by == ["token:good"] * 6 + [None] * 6


def test_the_access_log_names_who_asked_and_never_the_token(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    grants = grant("good-secret", rate_per_s=0.01, burst=3), grant("bad-secret", "viewer", "read")
    with gated(False, *grants, access_log=str(file)) as listeners:
        asked = [("good-secret", 200), ("bad-secret", 403), ("unknown-secret", 200)]
        for token, status in asked:
            assert of_rest(listeners, token).status == status
            assert of_rest(listeners, token, GENERATE).status == status
            assert (infer(listeners, token) is None) == (status == 200)
        assert of_rest(listeners, "good-secret").status == 429
        wait_for(lambda: len(file.read_text().splitlines()) == 10, "ten lines")
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    good, bad = "token:good-secret", "token:bad-secret"
    assert [one["principal"] for one in lines] == [good] * 3 + [bad] * 3 + [""] * 3 + [good]
    assert [one["status"] for one in lines][-2:] == ["OK", 429]
    assert "unknown-secret" not in file.read_text()
