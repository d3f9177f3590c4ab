"""Sequences through a real server, by stock clients: Triton's documented semantics."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from support.sequences import (
    infer,
    input_of,
    rest,
    write_running_sum,
    write_simple_dyna_sequence,
    write_simple_sequence,
)
from support.server import Server, running

VALUES = [0, 11, 7, 5, 3, 2, 0, 1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("sequences")
    write_simple_sequence(repository)
    write_simple_dyna_sequence(repository)
    idle = "max_sequence_idle_microseconds: 60000000"
    write_running_sum(repository, "direct", f"direct {{ }} {idle}")
    write_running_sum(repository, "oldest", f"oldest {{ max_candidate_sequences: 64 }} {idle}")
    write_running_sum(repository, "brief", "direct { } max_sequence_idle_microseconds: 50000")
    with running(repository) as started:
        yield started


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    opened: Any
    if request.param == "http":
        opened = http_client.InferenceServerClient(server.http)
    else:
        opened = grpc_client.InferenceServerClient(server.grpc)
    with opened:
        yield opened


def test_two_sequences_side_by_side_each_have_their_own_start(client: Any) -> None:
    for place, value in enumerate(VALUES):
        first, last = place == 0, place == len(VALUES) - 1
        for key, sign in ((1000, 1), (1001, -1)):
            got = infer(client, "simple_sequence", sign * value, key, start=first, end=last)
            assert got == sign * value + first


@pytest.mark.parametrize(("one", "other"), [(2000, 2001)])
def test_the_last_response_of_a_dynamic_sequence_has_the_correlation_id(
    client: Any, one: int, other: int
) -> None:
    for place, value in enumerate(VALUES):
        first, last = place == 0, place == len(VALUES) - 1
        for key, sign in ((one, 1), (other, -1)):
            got = infer(client, "simple_dyna_sequence", sign * value, key, start=first, end=last)
            assert got == sign * value + first + last * key


def test_sequences_go_on_over_one_stream(server: Server) -> None:
    heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    with grpc_client.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put((result, error)))
        for place, value in enumerate(VALUES):
            for key, sign in ((3000, 1), (3001, -1)):
                client.async_stream_infer(
                    "simple_dyna_sequence",
                    [input_of(client, sign * value)],
                    request_id=f"{key} {place}",
                    sequence_id=key,
                    sequence_start=place == 0,
                    sequence_end=place == len(VALUES) - 1,
                )
        for place, value in enumerate(VALUES):
            for key, sign in ((3000, 1), (3001, -1)):
                result, error = heard.get(timeout=60)
                assert error is None
                assert result.get_response().id == f"{key} {place}"
                extra = (place == 0) + (place == len(VALUES) - 1) * key
                assert int(result.as_numpy("OUTPUT").ravel()[0]) == sign * value + extra
        client.stop_stream()


@pytest.mark.parametrize("model", ["direct", "oldest"])
@pytest.mark.parametrize("key", [7, "a text"])
def test_a_running_sum_is_kept_for_each_sequence(client: Any, model: str, key: int | str) -> None:
    other = "another" if isinstance(key, str) else 8
    assert infer(client, model, 1, key, start=True) == 1
    assert infer(client, model, 10, other, start=True) == 10
    assert infer(client, model, 2, key) == 3
    assert infer(client, model, 20, other, end=True) == 30
    assert infer(client, model, 3, key, end=True) == 6


def test_a_request_without_a_start_is_refused_in_tritons_words(client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, "direct", 1, 99)
    assert caught.value.message() == (
        "inference request for sequence 99 to model 'direct' must specify the START flag on the "
        "first request of the sequence"
    )
    assert caught.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_a_request_without_an_id_is_refused_in_tritons_words(client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, "direct", 1, 0, start=True)
    assert caught.value.message() == (
        "inference request to model 'direct' must specify a non-zero or non-empty correlation ID"
    )


def test_a_request_of_two_rows_is_refused_in_tritons_words(client: Any) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(client, "direct", 1, 5, start=True, shape=(2, 1))
    assert caught.value.message() == (
        "inference request to model 'direct' must specify batch-size 1 due to requirements of "
        "sequence batcher"
    )


def test_a_text_where_the_model_takes_numbers_is_refused(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="takes TYPE_UINT64"):
        infer(client, "simple_dyna_sequence", 1, "five", start=True)


def test_a_start_with_an_id_that_lives_ends_the_old_sequence_and_is_logged(server: Server) -> None:
    assert rest(server, "direct", 5, sequence_id=70, sequence_start=True)[0] == 200
    status, answer = rest(server, "direct", 7, sequence_id=70, sequence_start=True)
    assert (status, answer["outputs"][0]["data"]) == (200, [7])
    assert "sequence 70 for model 'direct' has a conflict" in server.log()
    rest(server, "direct", 0, sequence_id=70, sequence_end=True)


def test_an_idle_sequence_is_over_and_its_client_is_told_to_start_again(server: Server) -> None:
    assert rest(server, "brief", 5, sequence_id=71, sequence_start=True)[0] == 200
    expired = 'modelyard_sequences_expired{model="brief",version="1"} '

    def is_over() -> bool:
        body = server.get("/metrics", server.metrics_port)[1].decode()
        return expired + "1" in body

    server.wait_for(is_over, "the sequence to be idle for too long")
    status, answer = rest(server, "brief", 5, sequence_id=71)
    assert status == 400
    assert "must specify the START flag" in answer["error"]


def test_a_sequence_finishes_on_the_old_version_when_its_model_is_reloaded(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    idle = "direct { } max_sequence_idle_microseconds: 20000000"
    write_running_sum(repository, "summing", idle)
    with running(repository, model_control_mode="poll", repository_poll_secs=1) as server:
        assert rest(server, "summing", 5, sequence_id=1, sequence_start=True)[0] == 200
        write_running_sum(repository, "summing", idle, rows=16)
        server.wait_for(lambda: "DRAINING" in server.log(), "the old version to drain")
        assert rest(server, "summing", 1, sequence_id=2, sequence_start=True)[0] == 200
        status, answer = rest(server, "summing", 2, sequence_id=1)
        assert (status, answer["outputs"][0]["data"]) == (200, [7])
        assert rest(server, "summing", 3, sequence_id=1, sequence_end=True)[1]["outputs"][0][
            "data"
        ] == [10]
        status, answer = rest(server, "summing", 2, sequence_id=2, sequence_end=True)
        assert (status, answer["outputs"][0]["data"]) == (200, [3])
        assert rest(server, "summing", 3, sequence_id=1)[0] == 400
