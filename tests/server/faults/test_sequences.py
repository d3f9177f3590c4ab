"""The fault table of sequences (docs/faults.md): each request ends once, a sequence goes on where
it was or is told that it does not, and slots are given back."""

import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from support.faults import Signs, rows
from support.server import Server
from support.usage import metric

pytestmark = pytest.mark.slow
MOST_WAITING = 6
KEYS = itertools.count(100)
LIVE = "modelyard_sequences_live"


@pytest.fixture(autouse=True)
def no_sequence_is_left(
    nothing_is_left: None, server: Server, client: InferenceServerClient
) -> Iterator[None]:
    yield
    server.wait_for(lambda: client.is_model_ready("summing"), "the model to serve")
    server.wait_for(lambda: metric(server, LIVE) == 0, "every slot to be given back")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def infer(
    client: InferenceServerClient, key: int, value: float, flags: str = "", do: str = ""
) -> float:
    """The sum of the sequence so far. `flags`: "s" starts it, "e" ends it."""
    found = client.infer(
        "summing",
        rows(value),
        sequence_id=key,
        sequence_start="s" in flags,
        sequence_end="e" in flags,
        parameters={"do": do},
    ).as_numpy("OUT")
    assert found is not None
    return float(found.item())


def error(client: InferenceServerClient, *request: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, *request)
    return f"{caught.value.status()} {caught.value.message()}"


def held_up(
    pool: ThreadPoolExecutor,
    client: InferenceServerClient,
    server: Server,
    signs: Signs,
    key: int,
    flags: str = "s",
) -> "Future[float]":
    """A request of 1 that executes until the sign `summing.go` is set."""
    signs.unset("summing.go")
    answer = pool.submit(infer, client, key, 1, flags, "wait")
    server.wait_for(lambda: signs.has("summing.waits"), "it to execute")
    return answer


def waiting(server: Server, count: int) -> None:
    line = f'nv_inference_pending_request_count{{model="summing",version="1"}} {count}\n'.encode()
    server.wait_for(
        lambda: line in server.get("/metrics", server.metrics_port)[1], f"{count} to wait"
    )


def test_request_without_a_start_is_refused_and_no_other_sequence_notices(
    client: InferenceServerClient,
) -> None:
    key, unknown = next(KEYS), next(KEYS)
    infer(client, key, 1, "s")
    said = error(client, unknown, 1)
    assert said == (
        f"StatusCode.INVALID_ARGUMENT inference request for sequence {unknown} to model 'summing' "
        "must specify the START flag on the first request of the sequence"
    )
    assert infer(client, key, 2, "e") == 3


def test_start_with_an_id_that_executes_answers_both_and_begins_anew(
    client: InferenceServerClient, server: Server, signs: Signs, pool: ThreadPoolExecutor
) -> None:
    key = next(KEYS)
    first = held_up(pool, client, server, signs, key)
    second = pool.submit(infer, client, key, 5, "s")
    waiting(server, 1)
    signs.set("summing.go")
    assert (first.result(60), second.result(60)) == (1, 5)
    assert infer(client, key, 2, "e") == 7
    assert f"sequence {key} for model 'summing' has a conflict" in server.log()


def test_full_backlog_refuses_at_once_and_answers_those_that_wait(
    client: InferenceServerClient, server: Server, signs: Signs, pool: ThreadPoolExecutor
) -> None:
    first = held_up(pool, client, server, signs, next(KEYS), "se")
    behind = [pool.submit(infer, client, next(KEYS), n, "se") for n in range(MOST_WAITING)]
    waiting(server, MOST_WAITING)
    said = error(client, next(KEYS), 1, "se")
    assert re.search("UNAVAILABLE .*Exceeds maximum queue size", said), said
    signs.set("summing.go")
    assert first.result(60) == 1
    assert sorted(one.result(60) for one in behind) == list(range(MOST_WAITING))


def test_client_that_goes_in_the_backlog_gives_its_place_to_those_behind(
    client: InferenceServerClient, server: Server, signs: Signs, pool: ThreadPoolExecutor
) -> None:
    keys = [next(KEYS) for _ in range(4)]
    running = held_up(pool, client, server, signs, keys[0], "se")
    ended: list[Future[Any]] = [Future() for _ in range(2)]
    calls = [
        client.async_infer(
            "summing",
            rows(1.0),
            lambda result, error, done=done: done.set_result(error),
            sequence_id=key,
            sequence_start=True,
        )
        for key, done in zip(keys[1:3], ended, strict=True)
    ]
    waiting(server, 2)
    behind = pool.submit(infer, client, keys[3], 7, "se")
    waiting(server, 3)
    for call, done in zip(calls, ended, strict=True):
        call.cancel()
        assert done.result(60) is not None
    signs.set("summing.go")
    assert (running.result(60), behind.result(60)) == (1, 7)
    assert "START flag" in error(client, keys[2], 1)


def test_client_that_goes_while_its_request_executes_leaves_its_sequence_alive(
    client: InferenceServerClient, server: Server, signs: Signs
) -> None:
    key, ended = next(KEYS), Future[Any]()
    signs.unset("summing.go")
    assert infer(client, key, 10, "s") == 10
    call = client.async_infer(
        "summing",
        rows(1.0),
        lambda result, error: ended.set_result(error),
        sequence_id=key,
        parameters={"do": "wait"},
    )
    server.wait_for(lambda: signs.has("summing.waits"), "it to execute")
    call.cancel()
    assert ended.result(60) is not None
    signs.set("summing.go")
    assert infer(client, key, 2, "e") == 13


def test_request_that_fails_leaves_its_sequence_where_it_was(client: InferenceServerClient) -> None:
    key = next(KEYS)
    assert infer(client, key, 1, "s") == 1
    assert "no luck" in error(client, key, 5, "", "fail")
    assert infer(client, key, 2, "e") == 3


def test_first_request_that_fails_ends_its_sequence(client: InferenceServerClient) -> None:
    key = next(KEYS)
    assert "no luck" in error(client, key, 5, "s", "fail")
    assert "START flag" in error(client, key, 1)


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_worker_that_ends_loses_its_sequences_and_those_in_the_backlog_go_on(
    client: InferenceServerClient, server: Server, signs: Signs, pool: ThreadPoolExecutor, how: str
) -> None:
    executing, idle, later = next(KEYS), next(KEYS), next(KEYS)
    infer(client, idle, 1, "s")
    running = held_up(pool, client, server, signs, executing)
    behind = pool.submit(error, client, executing, 1)
    waiting(server, 1)
    backlog = pool.submit(infer, client, later, 9, "se")
    waiting(server, 2)
    if how == "killed":
        os.kill(server.children("worker summing")[0], signal.SIGKILL)
    with pytest.raises(InferenceServerException) as caught:
        running.result(60)
    text = "was killed by signal 9" if how == "killed" else "without progress"
    assert text in str(caught.value)
    assert "start the sequence again" in behind.result(60)
    assert backlog.result(60) == 9
    for key in (executing, idle):
        assert re.search("INTERNAL .*start the sequence again", error(client, key, 1))
        assert infer(client, key, 4, "se") == 4


def test_deadline_in_a_slot_ends_the_sequence(
    client: InferenceServerClient, server: Server, signs: Signs, pool: ThreadPoolExecutor
) -> None:
    key, other = next(KEYS), next(KEYS)
    assert infer(client, key, 1, "s") == 1
    running = held_up(pool, client, server, signs, other, "se")
    given = http_client.InferInput("IN", [1, 1], "FP32")
    given.set_data_from_numpy(np.ones((1, 1), np.float32))
    with (
        http_client.InferenceServerClient(server.http) as asking,
        pytest.raises(InferenceServerException, match="Request timeout expired") as caught,
    ):
        asking.infer(
            "summing",
            [given],
            sequence_id=key,
            headers={"x-envoy-expected-rq-timeout-ms": "200"},
        )
    assert caught.value.status() == "503"
    signs.set("summing.go")
    assert running.result(60) == 1
    assert "START flag" in error(client, key, 1)


def test_sequence_ends_on_its_version_while_its_model_is_unloaded(
    client: InferenceServerClient, server: Server, pool: ThreadPoolExecutor
) -> None:
    key = next(KEYS)
    assert infer(client, key, 1, "s") == 1
    unloading = pool.submit(client.unload_model, "summing")
    server.wait_for(lambda: not client.is_model_ready("summing"), "the unload to begin")
    try:
        assert re.search("'summing'", error(client, next(KEYS), 1, "s"))
        assert infer(client, key, 2) == 3
        assert infer(client, key, 3, "e") == 6
        server.wait_for(lambda: not server.children("worker summing"), "the worker to end")
        unloading.result(60)
    finally:
        client.load_model("summing")


def test_sequence_ends_on_its_version_after_a_reload_beside_those_of_the_new_one(
    client: InferenceServerClient,
) -> None:
    old, new = next(KEYS), next(KEYS)
    assert infer(client, old, 1, "s") == 1
    client.load_model("summing", config=changed(client))
    assert infer(client, new, 20, "s") == 20
    assert infer(client, old, 2) == 3
    assert infer(client, new, 2) == 22
    assert infer(client, old, 2, "e") == 5
    assert infer(client, new, 2, "e") == 24


def test_start_after_a_reload_ends_the_copy_on_the_old_version_at_once(
    client: InferenceServerClient, server: Server
) -> None:
    """Which would else drain until the copy has been idle for ten minutes."""
    key, other = next(KEYS), next(KEYS)
    assert infer(client, key, 1, "s") == 1
    assert infer(client, other, 1, "s") == 1
    client.load_model("summing", config=changed(client))
    assert infer(client, key, 20, "s") == 20
    assert f"sequence {key} for model 'summing' has a conflict" in server.log()
    assert infer(client, other, 2, "e") == 3, "the old version answers whom it still has"
    server.wait_for(
        lambda: len(server.children("worker summing")) == 1, "the old version to be closed"
    )
    assert infer(client, key, 2, "e") == 22


def changed(client: InferenceServerClient) -> str:
    """The config with another priority of its requests' queue, so that a load is a new one."""
    config = client.get_model_config("summing", as_json=True)["config"]
    config["version_policy"] = {"latest": {"num_versions": 1}}
    size = int(config["max_batch_size"])
    config["max_batch_size"] = 3 - size
    return json.dumps(config)
