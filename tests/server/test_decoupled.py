"""Decoupled models and the response cache in a real server, asked by the stock clients."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http
from tritonclient.utils import InferenceServerException

from support.server import ROOT, Server, identity_config, running, write_identity

DECOUPLED = "model_transaction_policy { decoupled: true }\n"
PATIENCE_S = 60
Heard = tuple[Any, InferenceServerException | None]


def several(name: str, responses: int) -> str:
    parameter = f'parameters {{ key: "responses" value {{ string_value: "{responses}" }} }}\n'
    return identity_config(name, extra=DECOUPLED + parameter)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "several", config=several("several", 3))
    write_identity(repository, "none", config=several("none", 0))
    write_identity(repository, "ordinary")
    write_identity(repository, "slow", delay_ms=2000)
    cached = identity_config("cached", extra="response_cache { enable: true }\n")
    write_identity(repository, "cached", config=cached)
    both = identity_config("both", extra=DECOUPLED + "response_cache { enable: true }\n")
    write_identity(repository, "both", config=both)
    (repository / "repeat" / "1").mkdir(parents=True)
    example = ROOT / "examples" / "repeat"
    shutil.copy(example / "model.py", repository / "repeat" / "1" / "model.py")
    shutil.copy(example / "config.pbtxt", repository / "repeat" / "config.pbtxt")
    with running(
        repository, strict_readiness=False, cache_config=f"local,size={1 << 20}"
    ) as started:
        yield started


class Talk:
    """One stream and what came on it."""

    def __init__(self, server: Server, headers: dict[str, str] | None = None) -> None:
        self.heard: Queue[Heard] = Queue()
        self.client = triton.InferenceServerClient(server.grpc)
        self.client.start_stream(
            lambda result, error: self.heard.put((result, error)), headers=headers
        )

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def ask(self, model: str, *values: float, **options: Any) -> None:
        self.client.async_stream_infer(model, [tensor("INPUT0", [list(values)])], **options)

    def repeat(self, *values: int, delay_ms: int = 0, **options: Any) -> None:
        inputs = [
            tensor("IN", values, np.int32),
            tensor("DELAY", [delay_ms] * len(values), np.uint32),
            tensor("WAIT", [0], np.uint32),
        ]
        self.client.async_stream_infer("repeat", inputs, **options)

    def next(self) -> Any:
        """The next response's message. Raises its error."""
        result, error = self.heard.get(timeout=PATIENCE_S)
        if error is not None:
            raise error
        return result.get_response()


def tensor(name: str, values: Any, dtype: Any = np.float32) -> triton.InferInput:
    array = np.array(values, dtype)
    kind = {np.float32: "FP32", np.int32: "INT32", np.uint32: "UINT32"}[dtype]
    made = triton.InferInput(name, list(array.shape), kind)
    made.set_data_from_numpy(array)
    return made


def final(message: Any) -> bool:
    said: bool = message.parameters["triton_final_response"].bool_param
    return said


def value(message: Any) -> int:
    return int(np.frombuffer(message.raw_output_contents[0], np.int32)[0])


def post(server: Server, path: str, body: Any) -> tuple[int, Any]:
    status, answer = server.post(path, body)
    return status, json.loads(answer)


def rest_body(*values: float, **more: Any) -> dict[str, Any]:
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [1, len(values)], "data": [*values]}
    return {"inputs": [entry], **more}


def stats(server: Server, model: str) -> Any:
    _, answer = server.get(f"/v2/models/{model}/stats")
    return json.loads(answer)["model_stats"][0]


def test_unary_calls_refuse_a_decoupled_model_in_tritons_words(server: Server) -> None:
    status, answer = post(server, "/v2/models/several/infer", rest_body(1))
    text = "HTTP end point doesn't support models with decoupled transaction policy"
    assert (status, answer) == (501, {"error": text})
    with (
        triton.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        client.infer("several", [tensor("INPUT0", [[1.0]])])
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
    text = "ModelInfer RPC doesn't support models with decoupled transaction policy"
    assert caught.value.message() == text


def test_a_last_response_says_that_it_is_the_last(server: Server) -> None:
    with Talk(server) as talk:
        talk.ask("several", 1, 2, request_id="a")
        messages = [talk.next() for _ in range(3)]
    assert [final(message) for message in messages] == [False, False, True]
    assert {message.id for message in messages} == {"a"}


def test_an_end_without_a_response_is_written_only_where_it_was_asked_for(server: Server) -> None:
    with Talk(server) as talk:
        talk.repeat(5)
        talk.repeat(6, enable_empty_final_response=True)
        messages = [talk.next() for _ in range(3)]
        talk.ask("none", 1)
        talk.ask("none", 1, request_id="b", enable_empty_final_response=True)
        alone = talk.next()
    assert sorted(value(one) for one in messages if one.outputs) == [5, 6]
    assert [final(one) for one in messages if one.outputs] == [False, False]
    assert [final(one) for one in messages if not one.outputs] == [True]
    assert (alone.id, alone.model_name, final(alone), len(alone.outputs)) == ("b", "none", True, 0)


def test_decoupled_requests_of_one_stream_interleave(server: Server) -> None:
    with Talk(server) as talk:
        talk.repeat(1, 2, 3, delay_ms=1000, request_id="slow")
        talk.repeat(7, 8, request_id="quick", enable_empty_final_response=True)
        first = [talk.next().id for _ in range(3)]
        rest = [talk.next() for _ in range(3)]
    assert first == ["quick"] * 3
    assert [(one.id, value(one)) for one in rest] == [("slow", 1), ("slow", 2), ("slow", 3)]


def test_a_decoupled_request_does_not_hold_up_an_ordinary_one(server: Server) -> None:
    with Talk(server) as talk:
        talk.repeat(1, delay_ms=2000, request_id="slow")
        talk.ask("ordinary", 1, request_id="quick")
        ordinary = talk.next()
        assert (ordinary.id, final(ordinary)) == ("quick", True)
        assert talk.next().id == "slow"


def test_an_ordinary_request_does_not_hold_up_a_decoupled_one(server: Server) -> None:
    with Talk(server) as talk:
        talk.ask("slow", 1, request_id="slow")
        talk.repeat(1, request_id="quick")
        assert [talk.next().id, talk.next().id] == ["quick", "slow"]


def test_an_error_of_the_model_is_one_of_its_requests_and_the_stream_goes_on(
    server: Server,
) -> None:
    with Talk(server) as talk:
        inputs = [
            tensor("IN", [1, 2], np.int32),
            tensor("DELAY", [0], np.uint32),
            tensor("WAIT", [0], np.uint32),
        ]
        talk.client.async_stream_infer("repeat", inputs)
        with pytest.raises(InferenceServerException, match="IN has 2 elements and DELAY 1"):
            talk.next()
        talk.repeat(4)
        assert value(talk.next()) == 4


def test_the_first_error_ends_the_stream_where_that_was_asked_for(server: Server) -> None:
    with Talk(server, {"triton_grpc_error": "true"}) as talk:
        inputs = [
            tensor("IN", [1], np.int32),
            tensor("DELAY", [], np.uint32),
            tensor("WAIT", [0], np.uint32),
        ]
        talk.client.async_stream_infer("repeat", inputs)
        with pytest.raises(InferenceServerException) as caught:
            talk.next()
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_client_that_leaves_ends_its_streams(server: Server) -> None:
    before = stats(server, "repeat")["inference_stats"]["fail"]["count"]
    with Talk(server) as talk:
        talk.repeat(*range(1000), delay_ms=20)
        talk.next()
    server.wait_for(
        lambda: stats(server, "repeat")["inference_stats"]["fail"]["count"] == before + 1,
        "the model to notice",
    )


def test_generate_stream_sends_each_response_as_an_event(server: Server) -> None:
    body = json.dumps({"IN": [4, 2], "DELAY": [0, 0], "WAIT": 0}).encode()
    status, answer = server.call("POST", "/v2/models/repeat/generate_stream", body)
    events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line]
    assert status == 200
    assert [(event["OUT"], event["IDX"]) for event in events] == [(4, 0), (2, 1)]


def test_generate_takes_a_decoupled_model_that_answers_once(server: Server) -> None:
    asked = {"IN": [4], "DELAY": [0], "WAIT": 0}
    status, answer = post(server, "/v2/models/repeat/generate", asked)
    assert (status, answer["OUT"]) == (200, 4)
    asked = {"IN": [4, 5], "DELAY": [0, 0], "WAIT": 0}
    status, answer = post(server, "/v2/models/repeat/generate", asked)
    assert "exactly 1 response" in answer["error"]


def test_statistics_have_every_position_of_a_decoupled_answer(server: Server) -> None:
    with Talk(server) as talk:
        talk.ask("several", 1)
        for _ in range(3):
            talk.next()
    told = stats(server, "several")
    requests = told["inference_stats"]["success"]["count"]
    assert requests == told["execution_count"] >= 1
    assert set(told["response_stats"]) == {"0", "1", "2"}
    for position in told["response_stats"].values():
        assert position["success"]["count"] == position["compute_infer"]["count"] == requests
        assert position["success"]["ns"] > 0


def test_a_cache_on_a_decoupled_model_is_refused_at_load(server: Server) -> None:
    (row,) = [row for row in server.index() if row["name"] == "both"]
    assert "response_cache.enable excludes model_transaction_policy.decoupled" in row["reason"]


def test_a_repeated_request_is_answered_from_the_cache_and_counted(server: Server) -> None:
    for number in range(3):
        body = rest_body(1, 2, id=str(number))
        status, answer = post(server, "/v2/models/cached/infer", body)
        assert (status, answer["id"]) == (200, str(number))
        assert answer["outputs"][0]["data"] == [1, 2]
    other = rest_body(1, 2)
    other["inputs"][0]["shape"] = [2, 1]
    _, answer = post(server, "/v2/models/cached/infer", other)
    assert answer["outputs"][0]["shape"] == [2, 1]
    told = stats(server, "cached")
    of = told["inference_stats"]
    counts = {name: of[name]["count"] for name in ("success", "queue", "compute_infer")}
    assert counts == {"success": 4, "queue": 4, "compute_infer": 2}
    assert (of["cache_hit"]["count"], of["cache_miss"]["count"]) == (2, 2)
    assert (told["execution_count"], told["inference_count"]) == (2, 3)
    _, metrics = server.get("/metrics", port=server.metrics_port)
    for line in ("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model"):
        assert f'{line}{{model="cached",version="1"}} 2' in metrics.decode()


def test_a_reload_forgets_what_was_cached(server: Server, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    config = identity_config("fresh", extra="response_cache { enable: true }\n")
    folder = write_identity(repository, "fresh", config=config)
    with running(repository, cache_config="local,size=100000") as other:
        client = tritonclient.http.InferenceServerClient(other.http)
        for _ in range(2):
            assert post(other, "/v2/models/fresh/infer", rest_body(1))[0] == 200
        assert stats(other, "fresh")["inference_stats"]["cache_hit"]["count"] == 1
        (folder / "config.pbtxt").write_text(config + 'metric_tags { key: "a" value: "b" }\n')
        deadline = time.monotonic() + PATIENCE_S
        while not client.get_model_config("fresh").get("metric_tags"):
            assert time.monotonic() < deadline
        assert post(other, "/v2/models/fresh/infer", rest_body(1))[0] == 200
        told = stats(other, "fresh")["inference_stats"]
        assert (told["cache_hit"]["count"], told["cache_miss"]["count"]) == (0, 1)
        client.close()
