"""The rate limiter of a whole server: what is refused, what waits, and what is shown of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf import text_format

from backends.errors import LoadFailed
from repository.model import ModelConfig
from server.fleet.rate_limits import RateLimits
from server.settings.table import Settings
from support.scripts import write_python
from support.server import Server, running

IDENTITY = """
backend: "identity"
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 2 kind: KIND_CPU %s }
parameters { key: "execute_delay_ms" value { string_value: "20" } }
"""


CALLING = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        array = request.inputs()[0].as_numpy().reshape(-1)[:1]
        call = pb_utils.InferenceRequest(
            model_name=order(request)["model"],
            requested_output_names=["y"],
            inputs=[pb_utils.Tensor("x", array)],
        )
        response = call.exec()
        if response.has_error():
            return failure(response)
        return answer(response.output_tensors()[0].as_numpy().reshape(1, 1))
"""
"""Calls the model that the request's parameter `model` names."""


COLD = 'parameters { key: "load_on_demand" value { string_value: "true" } }'


def write(folder: Path, name: str, limits: str, more: str = "") -> None:
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    config = IDENTITY % f"rate_limiter {{ {limits} }}"
    (folder / name / "config.pbtxt").write_text(config + more)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    write(models, "one", 'resources { name: "R" count: 1 }')
    write(models, "half", 'resources { name: "R" count: 1 } priority: 2')
    write(models, "cold", 'resources { name: "R" count: 1 }', COLD)
    write(models, "greedy", 'resources { name: "R" count: 2 }')
    for name, limits in (("holds", 'resources { name: "R" count: 1 }'), ("free", "")):
        group = f"instance_group {{ kind: KIND_CPU rate_limiter {{ {limits} }} }}"
        write_python(models, name, CALLING, group)
    with running(
        models,
        rate_limit="execution_count",
        rate_limit_resource=["R:1"],
        strict_readiness=False,
        repository_poll_secs=0.1,
    ) as started:
        yield started


def ask(server: Server, model: str) -> int:
    x = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    status, _ = server.post(f"/v2/models/{model}/infer", {"inputs": [x]})
    return status


def row_of(server: Server, model: str) -> dict[str, str]:
    (row,) = (one for one in server.index() if one["name"] == model)
    return row


def metric(server: Server, name: str) -> float:
    _, body = server.get("/metrics", server.metrics_port)
    lines = body.decode().splitlines()
    label = '{resource="R",device="0"}'
    (found,) = (one for one in lines if one.startswith(f"modelyard_rate_limiter_{name}{label}"))
    return float(found.split()[-1])


def test_models_that_need_the_same_execute_one_after_the_other(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda model: ask(server, model), ["one", "half"] * 8))
    assert statuses == [200] * 16
    assert metric(server, "resource_count") == 1
    assert metric(server, "resource_in_use") == 0
    assert metric(server, "waiting_instances") == 0
    assert metric(server, "waits") > 0


def test_a_model_that_could_never_execute_is_refused_with_what_there_is(server: Server) -> None:
    row = row_of(server, "greedy")
    assert row["state"] == "UNAVAILABLE"
    assert row["reason"].endswith(
        'Resource count for "R" is limited to 1 which will prevent scheduling of one or more model '
        "instances, the minimum required count is 2; there are R: 1 (--rate-limit-resource)"
    )


def test_a_change_of_the_limits_takes_effect_in_place_or_changes_nothing(
    server: Server, models: Path
) -> None:
    write(models, "half", 'resources { name: "S" count: 1 }')
    server.wait_for(lambda: '"S" is limited to 0' in row_of(server, "half").get("reason", ""), "S")
    assert ask(server, "half") == 200
    write(models, "half", "priority: 3")
    server.wait_for(lambda: not row_of(server, "half").get("reason"), "no need of half")
    assert ask(server, "half") == 200
    waits = metric(server, "waits")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: ask(server, "half"), range(8))) == [200] * 8
    assert metric(server, "waits") == waits


SUMS = """
backend: "identity"
max_batch_size: 1
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
sequence_batching { }
instance_group { count: 2 kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } } }
parameters { key: "execute_delay_ms" value { string_value: "20" } }
"""


def test_sequences_wait_for_resources_as_other_models_do(server: Server, models: Path) -> None:
    (models / "sums" / "1").mkdir(parents=True)
    (models / "sums" / "config.pbtxt").write_text(SUMS)
    server.wait_for(lambda: server.get("/v2/models/sums/ready")[0] == 200, "the model sums")
    waits = metric(server, "waits")

    def sequence(key: int) -> list[int]:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [key]}
        return [
            server.post(
                "/v2/models/sums/infer",
                {
                    "inputs": [x],
                    "parameters": {
                        "sequence_id": key,
                        "sequence_start": step == 0,
                        "sequence_end": step == 2,
                    },
                },
            )[0]
            for step in range(3)
        ]

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(ask, server, "one") for _ in range(4)]
        assert list(pool.map(sequence, (1, 2))) == [[200] * 3] * 2
        assert [other.result() for other in others] == [200] * 4
    assert metric(server, "waits") > waits
    assert metric(server, "resource_in_use") == 0


def test_a_sequence_model_that_could_never_execute_is_refused() -> None:
    limits = RateLimits(Settings(rate_limit="execution_count", rate_limit_resource=["R:1"]))
    config = text_format.Parse(SUMS.replace("count: 1 } }", "count: 2 } }"), ModelConfig())
    with pytest.raises(LoadFailed, match="the minimum required count is 2"):
        limits.check(config)


def call(server: Server, script: str, model: str) -> tuple[int, str]:
    body = {
        "parameters": {"model": model},
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}],
    }
    status, text = server.post(f"/v2/models/{script}/infer", body)
    return status, text.decode()


@pytest.mark.parametrize("callee", ["one", "cold"])
def test_call_of_a_model_that_needs_what_the_caller_holds_is_refused_at_once(
    server: Server, callee: str
) -> None:
    status, text = call(server, "holds", callee)
    assert status == 500
    assert (
        f"this call can never be answered: '{callee}' version 1 needs 1 of the resource 'R' to "
        "execute, and of 1 there are 1 held by 'holds' version 1 until their calls are answered; "
        "let there be 2 (--rate-limit-resource=R:2)"
    ) in text
    assert ask(server, "one") == 200, "the resource was given back"


def test_call_of_a_model_that_is_loaded_on_demand_waits_for_its_load(server: Server) -> None:
    assert call(server, "free", "cold")[0] == 200


def test_callers_that_hold_nothing_wait_for_the_resources_of_their_callees(server: Server) -> None:
    with ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(call, server, "free", "one") for _ in range(6)]
        asked = [pool.submit(ask, server, "half") for _ in range(6)]
        assert [one.result()[0] for one in calls] == [200] * 6
        assert [one.result() for one in asked] == [200] * 6
