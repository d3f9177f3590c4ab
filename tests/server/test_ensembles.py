"""Ensembles in a real server, asked by the stock clients; and what becomes of requests when a
step's model is missing, fails, hangs, is reloaded, or goes away."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http
from tritonclient.utils import InferenceServerException

from support.server import Server, identity_config, running, write_identity

PATIENCE_S = 60
Step = tuple[str, str, str]
"""Model, tensor read, tensor written."""

FAILING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("no luck", pb_utils.TritonError.INVALID_ARG)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""


def ensemble(name: str, *steps: Step, more: str = "", inner: str = "") -> str:
    """Steps of identity models in a row or beside each other."""
    made = "".join(
        f'step {{ model_name: "{model}" model_version: -1\n'
        f'  input_map {{ key: "INPUT0" value: "{reads}" }}\n'
        f'  output_map {{ key: "OUTPUT0" value: "{writes}" }} }}\n'
        for model, reads, writes in steps
    )
    outputs = "".join(
        f'output {{ name: "{tensor}" data_type: TYPE_FP32 dims: -1 }}\n'
        for tensor in sorted({w for _, _, w in steps if w.startswith("Y")})
    )
    return (
        f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: 8\n'
        f'input {{ name: "X" data_type: TYPE_FP32 dims: -1 }}\n{outputs}'
        f"ensemble_scheduling {{\n{made}{inner}}}\n{more}"
    )


def write(repository: Path, name: str, config: str) -> Path:
    return write_identity(repository, name, config=config)


def fixed(config: str) -> str:
    """The same for rows of one number, so that requests can go through an ensemble together."""
    return config.replace("dims: -1", "dims: 1")


def several(name: str, responses: int) -> str:
    more = (
        "model_transaction_policy { decoupled: true }\n"
        f'parameters {{ key: "responses" value {{ string_value: "{responses}" }} }}\n'
    )
    return identity_config(name, extra=more)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("models")
    for name in ("a", "b", "changing"):
        write_identity(repository, name)
    write_identity(repository, "slow", delay_ms=1500)
    write(repository, "many", several("many", 3))
    write(repository, "pair", ensemble("pair", ("a", "X", "t"), ("b", "t", "Y")))
    forked = ensemble("forked", ("a", "X", "Y0"), ("slow", "X", "Y1"))
    write(repository, "forked", forked)
    write(repository, "streaming", ensemble("streaming", ("many", "X", "t"), ("a", "t", "Y")))
    for model, other in (("p", "q"), ("q", "p")):
        write(repository, model, several(model, 60).replace("dynamic_batching {}", ""))
        steps, bound = ((model, "X", "t"), (other, "t", "Y")), "max_inflight_requests: 1\n"
        name = f"{model}_to_{other}"
        write(repository, name, ensemble(name, *steps, inner=bound))
    write(repository, "nested", ensemble("nested", ("pair2", "X", "Y")))
    nested = ensemble("pair2", ("a", "X", "t"), ("b", "t", "Y"))
    write(repository, "pair2", nested.replace('"X"', '"INPUT0"').replace('"Y"', '"OUTPUT0"'))
    write(repository, "waits", ensemble("waits", ("late", "X", "Y")))
    write(repository, "misfit", ensemble("misfit", ("typed", "X", "Y")))
    write(repository, "typed", identity_config("typed").replace("TYPE_FP32", "TYPE_INT32"))
    write(repository, "follows", ensemble("follows", ("changing", "X", "t"), ("slow", "t", "Y")))
    for name, delay_ms in (("row", 0), ("changing_row", 0), ("slow_row", 1500)):
        write(repository, name, fixed(identity_config(name, delay_ms)))
    for first, last in (("row", "row"), ("changing_row", "slow_row")):
        name = f"{first}_to_{last}"
        write(repository, name, fixed(ensemble(name, (first, "X", "t"), (last, "t", "Y"))))
    failing = identity_config("failing").replace("identity", "python").split("dynamic")[0]
    (write(repository, "failing", failing) / "1" / "model.py").write_text(FAILING)
    write(repository, "fails", ensemble("fails", ("failing", "X", "Y")))
    return repository


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with running(
        models, strict_readiness=False, repository_poll_secs=1, model_control_mode="poll"
    ) as started:
        yield started


def infer(server: Server, model: str, *values: float, timeout: int = 60, **options: Any) -> Any:
    with tritonclient.http.InferenceServerClient(server.http, network_timeout=timeout) as client:
        tensor = tritonclient.http.InferInput("X", [1, len(values)], "FP32")
        tensor.set_data_from_numpy(np.asarray([values], np.float32))
        return client.infer(model, [tensor], **options)


def grpc_tensor(*values: float) -> Any:
    tensor = triton.InferInput("X", [1, len(values)], "FP32")
    tensor.set_data_from_numpy(np.asarray([values], np.float32))
    return tensor


def row(server: Server, model: str) -> dict[str, Any]:
    return next(one for one in server.index() if one["name"] == model)


def successes(server: Server, model: str) -> int:
    status, body = server.get(f"/v2/models/{model}/stats")
    assert status == 200
    stats = json.loads(body)["model_stats"][0]["inference_stats"]
    count: int = stats["success"]["count"]
    return count


def test_an_ensemble_answers_over_rest_and_grpc_and_so_does_one_of_ensembles(
    server: Server,
) -> None:
    assert infer(server, "pair", 1, 2).as_numpy("Y").tolist() == [[1, 2]]
    assert infer(server, "nested", 3).as_numpy("Y").tolist() == [[3]]
    with triton.InferenceServerClient(server.grpc) as client:
        answer = client.infer("pair", [grpc_tensor(4, 5)], request_id="mine")
        assert answer.as_numpy("Y").tolist() == [[4, 5]]
        assert answer.get_response().id == "mine"


def test_config_metadata_and_index_say_what_it_is(server: Server) -> None:
    config = json.loads(server.get("/v2/models/pair/config")[1])
    assert config["platform"] == "ensemble"
    assert config["ensemble_scheduling"]["step"][1]["input_map"] == {"INPUT0": "t"}
    assert json.loads(server.get("/v2/models/pair")[1])["platform"] == "ensemble"
    assert row(server, "pair")["state"] == "READY"
    streaming = json.loads(server.get("/v2/models/streaming/config")[1])
    assert streaming["model_transaction_policy"] == {"decoupled": True}


def test_statistics_count_the_ensemble_and_its_steps(server: Server) -> None:
    before = {name: successes(server, name) for name in ("pair", "a", "b")}
    for _ in range(5):
        infer(server, "pair", 1)
    after = {name: successes(server, name) for name in before}
    assert {name: after[name] - before[name] for name in before} == {"pair": 5, "a": 5, "b": 5}


def test_requests_that_come_together_get_their_own_answers_and_are_counted_one_by_one(
    server: Server,
) -> None:
    before, many = successes(server, "row"), 40
    results: Queue[tuple[int, Any, Any]] = Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        for number in range(many):
            client.async_infer(
                "row_to_row",
                [grpc_tensor(number)],
                lambda result, error, number=number: results.put((number, result, error)),
            )
        for _ in range(many):
            number, result, error = results.get(timeout=PATIENCE_S)
            assert error is None
            assert result.as_numpy("Y").tolist() == [[number]]
    assert successes(server, "row_to_row") == many
    assert successes(server, "row") == before + 2 * many


def test_only_what_the_requested_outputs_need_is_run(server: Server) -> None:
    outputs = [tritonclient.http.InferRequestedOutput("Y0")]
    before = successes(server, "slow")
    began = time.monotonic()
    answer = infer(server, "forked", 1, outputs=outputs)
    assert answer.as_numpy("Y0").tolist() == [[1]]
    assert answer.as_numpy("Y1") is None
    assert time.monotonic() - began < 1.4
    assert successes(server, "slow") == before


def test_a_decoupled_step_makes_the_ensemble_decoupled_and_each_response_goes_on(
    server: Server,
) -> None:
    heard: Queue[Any] = Queue()
    with triton.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put(error or result))
        client.async_stream_infer("streaming", [grpc_tensor(7)], enable_empty_final_response=True)
        answers = [heard.get(timeout=PATIENCE_S) for _ in range(4)]
        client.stop_stream()
    assert [one.as_numpy("Y").tolist() for one in answers[:3]] == [[[7]]] * 3
    last = [one.get_response().parameters["triton_final_response"].bool_param for one in answers]
    assert last == [False, False, False, True]
    with pytest.raises(InferenceServerException, match="decoupled transaction policy"):
        infer(server, "streaming", 1)


def test_streaming_ensembles_that_wait_for_each_others_models_come_to_their_ends(
    server: Server,
) -> None:
    results: Queue[tuple[Any, Any]] = Queue()
    clients = [triton.InferenceServerClient(server.grpc) for _ in range(2)]
    for client, name in zip(clients, ("p_to_q", "q_to_p"), strict=True):
        client.start_stream(lambda result, error: results.put((result, error)))
        client.async_stream_infer(name, [grpc_tensor(1)])
    for _ in range(2 * 60 * 60):
        _, error = results.get(timeout=PATIENCE_S)
        assert error is None
    for client in clients:
        client.close()


def test_a_steps_error_says_in_which_ensemble_and_keeps_its_status(server: Server) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(server, "fails", 1)
    assert caught.value.message() == "in ensemble 'fails', no luck"
    assert caught.value.status() == "400"


def test_a_deadline_ends_the_request_while_a_step_executes(server: Server) -> None:
    with triton.InferenceServerClient(server.grpc) as client:
        began = time.monotonic()
        with pytest.raises(InferenceServerException) as caught:
            client.infer("follows", [grpc_tensor(1)], client_timeout=0.3)
        assert time.monotonic() - began < 1.4
    assert "Deadline" in str(caught.value.message()) or "timeout" in str(caught.value.message())


@pytest.mark.slow
def test_a_client_that_goes_ends_the_steps_of_its_request(server: Server) -> None:
    before = _failures(server, "follows")
    with pytest.raises(Exception, match="timed out"):
        infer(server, "follows", 1, timeout=1)
    server.wait_for(lambda: _failures(server, "follows") > before, "the request to be cancelled")


def _failures(server: Server, model: str) -> int:
    stats = json.loads(server.get(f"/v2/models/{model}/stats")[1])["model_stats"][0]
    count: int = stats["inference_stats"]["fail"]["count"]
    return count


@pytest.mark.slow
def test_an_ensemble_without_its_model_says_so_and_is_ready_when_the_model_is(
    server: Server, models: Path
) -> None:
    assert row(server, "waits")["state"] == "UNAVAILABLE"
    assert "step 0 needs 'late', which does not serve" in row(server, "waits")["reason"]
    with pytest.raises(InferenceServerException, match="'waits' has no available versions"):
        infer(server, "waits", 1)
    write_identity(models, "late")
    server.wait_for(lambda: row(server, "waits")["state"] == "READY", "the ensemble to load")
    assert infer(server, "waits", 2).as_numpy("Y").tolist() == [[2]]
    shutil.rmtree(models / "late")
    server.wait_for(lambda: row(server, "waits")["state"] != "READY", "the ensemble to notice")
    with pytest.raises(InferenceServerException) as caught:
        infer(server, "waits", 1)
    assert "version 1 has a step that cannot run: Request for unknown model: 'late'" in str(
        caught.value
    )
    write_identity(models, "late")
    server.wait_for(lambda: row(server, "waits")["state"] == "READY", "it to be ready again")


def test_a_misfit_is_the_reason_with_line_and_column(server: Server) -> None:
    server.wait_for(lambda: "reason" in row(server, "misfit"), "its load to have failed")
    reason = row(server, "misfit")["reason"]
    assert "misfit/config.pbtxt:8:3 " in reason
    assert (
        "E142 in ensemble misfit, ensemble tensor X: inconsistent data type: TYPE_FP32 is inferred "
        "from model misfit while TYPE_INT32 is inferred from model typed" in reason
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changing", "follows", "as_config"),
    [("changing", "follows", str), ("changing_row", "changing_row_to_slow_row", fixed)],
)
def test_a_reload_of_a_steps_model_is_seen_by_the_next_request_and_fails_none(
    server: Server, models: Path, changing: str, follows: str, as_config: Callable[[str], str]
) -> None:
    with triton.InferenceServerClient(server.grpc) as client:
        results: Queue[Any] = Queue()
        client.async_infer(
            follows, [grpc_tensor(5)], lambda result, error: results.put((result, error))
        )
        before = server.log().count(f"{changing} 1: READY")
        write(models, changing, as_config(identity_config(changing, delay_ms=1)))
        server.wait_for(
            lambda: server.log().count(f"{changing} 1: READY") > before, "the model to be reloaded"
        )
        result, error = results.get(timeout=PATIENCE_S)
        assert error is None
        assert result.as_numpy("Y").tolist() == [[5]]
    assert infer(server, follows, 6).as_numpy("Y").tolist() == [[6]]


@pytest.fixture(scope="module")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("explicit")
    for name in ("a", "b", "c"):
        write_identity(repository, name)
    write(repository, "pair", ensemble("pair", ("a", "X", "t"), ("b", "t", "Y")))
    write(repository, "other", ensemble("other", ("b", "X", "t"), ("c", "t", "Y")))
    with running(repository, model_control_mode="explicit", strict_readiness=False) as started:
        yield started


def serving(server: Server) -> set[str]:
    return {one["name"] for one in server.index() if one.get("state") == "READY"}


@pytest.mark.slow
def test_loading_an_ensemble_loads_its_steps_and_unloading_may_take_them_along(
    explicit: Server,
) -> None:
    with triton.InferenceServerClient(explicit.grpc) as client:
        client.load_model("pair")
        assert serving(explicit) == {"pair", "a", "b"}
        client.load_model("other")
        client.load_model("a")
        client.unload_model("b")
        explicit.wait_for(lambda: serving(explicit) == {"a", "c"}, "both ensembles to be down")
        client.load_model("b")
        explicit.wait_for(
            lambda: serving(explicit) == {"pair", "other", "a", "b", "c"}, "both to be back"
        )
        client.unload_model("other", unload_dependents=True)
        explicit.wait_for(
            lambda: serving(explicit) == {"pair", "a", "b"}, "only what nobody needs to go"
        )
        client.unload_model("pair")
        explicit.wait_for(lambda: serving(explicit) == {"a", "b"}, "the steps to stay")


@pytest.mark.slow
def test_ensembles_that_need_each_other_are_refused_and_nothing_waits_for_ever(
    tmp_path: Path,
) -> None:
    for name, needs in (("one", "two"), ("two", "one")):
        config = ensemble(name, (needs, "X", "Y"))
        write(tmp_path, name, config)
    with running(tmp_path, strict_readiness=False, exit_on_error=False) as server:
        for name, needs in (("one", "two"), ("two", "one")):
            assert f"needs '{needs}', which does not serve" in row(server, name)["reason"]
