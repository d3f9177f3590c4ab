"""The fault table of models that call others (docs/faults.md): an ensemble, a script, and a script
that calls the ensemble. Each request ends once, with an error that says where."""

import os
import re
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from support.faults import BRANCHING, CALLERS, STEPS, Signs, rows
from support.server import Server

pytestmark = pytest.mark.slow
TIMEOUT_US = 60_000_000


def infer(client: InferenceServerClient, model: str, at: str = "", do: str = "") -> float:
    """What it answers to 1."""
    given = {"at": at, "do": do}
    found = client.infer(model, rows(1.0), parameters=given, timeout=TIMEOUT_US).as_numpy("OUT")
    assert found is not None
    return float(found[0, 0])


def error(client: InferenceServerClient, model: str, at: str = "", do: str = "") -> str:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, model, at, do)
    return f"{caught.value.status()} {caught.value.message()}"


def where(caller: str) -> str:
    """How the text of a step's error begins."""
    return "" if caller == "script" else r"in ensemble 'chain', "


def counts(client: InferenceServerClient, model: str) -> tuple[int, int]:
    """Successes and failures."""
    found = client.get_inference_statistics(model).model_stats[0].inference_stats
    return int(found.success.count), int(found.fail.count)


FAULTS = [
    ("fail", r"INVALID_ARGUMENT {where}no luck"),
    ("throw", r"INTERNAL {where}.*a bug of the model"),
    ("die", r"INTERNAL {where}.*instance '{at}_0_0' exited with status 3"),
]


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("do", "text"), FAULTS, ids=[do for do, _ in FAULTS])
def test_fault_of_a_callee_is_the_callers_error(
    client: InferenceServerClient, server: Server, caller: str, at: str, do: str, text: str
) -> None:
    said = error(client, caller, at, do)
    assert re.search(text.format(where=where(caller), at=at), said), said
    server.wait_for(lambda: client.is_model_ready(at), "the callee to serve")
    assert infer(client, caller) == 4


@pytest.mark.parametrize("caller", BRANCHING)
@pytest.mark.parametrize(("do", "text"), FAULTS, ids=[do for do, _ in FAULTS])
def test_fault_of_a_step_with_a_map_or_a_condition_is_told_once(
    client: InferenceServerClient, server: Server, caller: str, do: str, text: str
) -> None:
    before = counts(client, caller)
    said = error(client, caller, "first", do)
    assert re.search(text.format(where=f"in ensemble '{caller}', ", at="first"), said), said
    assert counts(client, caller) == (before[0], before[1] + 1)
    server.wait_for(lambda: client.is_model_ready("first"), "the step's model to serve")
    assert infer(client, caller) == 2


def test_fault_of_a_step_that_a_condition_leaves_out_is_nobodys(
    client: InferenceServerClient,
) -> None:
    assert infer(client, "guarded", "third", "die") == 2


@pytest.mark.parametrize("at", ["mapped", "guarded"])
def test_client_that_goes_ends_all_calls_of_a_map_or_a_condition(
    client: InferenceServerClient, server: Server, signs: Signs, at: str
) -> None:
    before = counts(client, at)
    given = grpc_client.InferInput("IN", [6, 1] if at == "mapped" else [1, 1], "FP32")
    given.set_data_from_numpy(np.ones(given.shape(), np.float32))
    ended: Future[Any] = Future()
    call = client.async_infer(
        at,
        [given],
        lambda result, error: ended.set_result(error),
        parameters={"at": "first", "do": "wait"},
    )
    server.wait_for(lambda: signs.has("first.waits"), "the step to execute")
    call.cancel()
    assert ended.result(60) is not None
    signs.set("first.go")
    server.wait_for(lambda: counts(client, at) == (before[0], before[1] + 1), "it to be counted")
    assert infer(client, at) == 2


@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_hangs_is_ended_with_the_limit_in_the_text(
    client: InferenceServerClient, server: Server, caller: str
) -> None:
    said = error(client, caller, "second", "hang")
    assert re.search(f"{where(caller)}.*'second' version 1.*without progress", said), said
    server.wait_for(lambda: client.is_model_ready("second"), "the callee to serve")
    assert infer(client, caller) == 4


@pytest.mark.parametrize("at", ["first", "third"])
@pytest.mark.parametrize("caller", CALLERS)
def test_worker_of_a_callee_that_is_killed_is_named(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str, at: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(error, client, caller, at, "wait")
        server.wait_for(lambda: signs.has(f"{at}.waits"), "the step to execute")
        os.kill(server.children(f"worker {at}_0")[0], signal.SIGKILL)
        found = said.result(60)
    assert re.search(f"{where(caller)}.*'{at}_0_0' was killed by signal 9", found), found


@pytest.mark.parametrize("caller", ["script", "outer"])
def test_worker_of_the_caller_that_is_killed_ends_its_calls(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(error, client, caller, "second", "wait")
        server.wait_for(lambda: signs.has("second.waits"), "the step to execute")
        before = counts(client, "third")
        os.kill(server.children(f"worker {caller}_0")[0], signal.SIGKILL)
        assert "was killed by signal 9" in said.result(60)
    signs.set("second.go")
    server.wait_for(lambda: client.is_model_ready(caller), "the caller to serve")
    assert counts(client, "third") == before, "no step follows"


MISSING = {
    "chain": "UNAVAILABLE .*'chain' version 1 .*has a step that cannot run: .*'second'",
    "script": "NOT_FOUND .*unknown model: 'second'",
    "outer": "UNAVAILABLE .*'chain' version 1 .*has a step that cannot run: .*'second'",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_is_missing_is_named(client: InferenceServerClient, caller: str) -> None:
    client.unload_model("second")
    try:
        said = error(client, caller)
        assert re.search(MISSING[caller], said), said
    finally:
        client.load_model("second")
    assert infer(client, caller) == 4


@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_is_loading_is_named(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str
) -> None:
    client.unload_model("second")
    signs.clear()
    signs.set("second.loads-slowly")
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, server, "second")
        server.wait_for(lambda: signs.has("second.loads"), "the load to begin")
        said = error(client, caller)
        signs.unset("second.loads-slowly")
        loading.result(60)
    assert re.search("'second'.*loading", said), said
    server.wait_for(lambda: client.is_model_ready(caller), "the caller to serve")
    assert infer(client, caller) == 4


def load(server: Server, model: str) -> None:
    with InferenceServerClient(server.grpc) as client:
        client.load_model(model)


@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_failed_to_load_is_named_with_the_reason(
    client: InferenceServerClient, signs: Signs, caller: str
) -> None:
    client.unload_model("second")
    signs.set("second.fails-to-load")
    with pytest.raises(InferenceServerException, match="it has no weights"):
        client.load_model("second")
    said = error(client, caller)
    signs.unset("second.fails-to-load")
    client.load_model("second")
    assert re.search("'second'.*it has no weights", said), said
    assert infer(client, caller) == 4


@pytest.mark.parametrize("reloaded", STEPS)
@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_is_reloaded_in_the_middle_fails_no_request(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str, reloaded: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = begun(pool, client, server, signs, caller)
        client.load_model(reloaded)
        signs.set("first.go")
        assert answer.result(60) == 4


def begun(
    pool: ThreadPoolExecutor,
    client: InferenceServerClient,
    server: Server,
    signs: Signs,
    caller: str,
) -> "Future[float]":
    """A request that waits in the first step."""
    answer = pool.submit(infer, client, caller, "first", "wait")
    server.wait_for(lambda: signs.has("first.waits"), "the first step to execute")
    return answer


@pytest.mark.parametrize("caller", CALLERS)
def test_callee_that_is_unloaded_in_the_middle(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str
) -> None:
    """An ensemble's request has kept it; a script's call comes too late, and says so."""
    with ThreadPoolExecutor(1) as pool:
        answer = begun(pool, client, server, signs, caller)
        client.unload_model("third")
        signs.set("first.go")
        if caller == "script":
            with pytest.raises(InferenceServerException, match="'third'"):
                answer.result(60)
        else:
            assert answer.result(60) == 4
    client.load_model("third")


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("caller", CALLERS)
def test_client_that_goes_at_any_step_ends_its_request(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str, at: str
) -> None:
    before, behind = counts(client, caller), counts(client, "third")
    ended: Future[Any] = Future()
    call = client.async_infer(
        caller,
        rows(1.0),
        lambda result, error: ended.set_result(error),
        parameters={"at": at, "do": "wait"},
    )
    server.wait_for(lambda: signs.has(f"{at}.waits"), "the step to execute")
    call.cancel()
    assert ended.result(60) is not None
    signs.set(f"{at}.go")
    server.wait_for(
        lambda: counts(client, caller) == (before[0], before[1] + 1), "it to be counted once"
    )
    if at != "third":
        assert counts(client, "third") == behind, "no step follows"
    assert infer(client, caller) == 4


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("caller", CALLERS)
def test_deadline_that_passes_at_any_step_ends_the_request(
    client: InferenceServerClient, server: Server, signs: Signs, caller: str, at: str
) -> None:
    before = counts(client, caller)
    given = http_client.InferInput("IN", [1, 1], "FP32")
    given.set_data_from_numpy(np.ones((1, 1), np.float32))
    with (
        http_client.InferenceServerClient(server.http) as asking,
        pytest.raises(InferenceServerException) as caught,
    ):
        asking.infer(
            caller,
            [given],
            headers={"x-envoy-expected-rq-timeout-ms": "400"},
            parameters={"at": at, "do": "wait"},
        )
    assert caught.value.status() == "503"
    assert "timeout expired" in str(caught.value.message())
    signs.set(f"{at}.go")
    server.wait_for(
        lambda: counts(client, caller) == (before[0], before[1] + 1), "it to be counted once"
    )
    assert infer(client, caller) == 4


def test_stream_of_requests_has_one_answer_for_each(
    client: InferenceServerClient, server: Server
) -> None:
    """Over one gRPC stream, those that fail beside those that do not."""
    heard: list[str] = []
    done: Future[None] = Future()
    orders = [("", ""), ("second", "fail"), ("", ""), ("third", "throw"), ("first", "fail")]

    def hear(result: Any, error: Any) -> None:
        heard.append(str(error) if error is not None else str(result.as_numpy("OUT").item()))
        if len(heard) == len(orders):
            done.set_result(None)

    with grpc_client.InferenceServerClient(server.grpc) as streaming:
        streaming.start_stream(hear)
        for number, (at, do) in enumerate(orders):
            streaming.async_stream_infer(
                "chain", rows(number), request_id=str(number), parameters={"at": at, "do": do}
            )
        done.result(60)
        streaming.stop_stream()
    texts = ["3.0", "no luck", "5.0", "a bug of the model", "no luck"]
    for text in texts:
        assert sum(text in one for one in heard) == texts.count(text), heard


def test_no_version_that_is_replaced_waits_for_a_request_that_has_ended(
    client: InferenceServerClient,
) -> None:
    """The last of this file: a request that had leaked would keep a worker for five minutes."""
    for name in ("chain", "outer", "script", *STEPS):
        client.load_model(name)
    assert infer(client, "outer") == 4
