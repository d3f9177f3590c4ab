"""gRPC against mutated requests: nothing breaks, hangs or grows, and the next client is served."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb

from support.rest_cases import write_models
from support.server import Server, running
from support.usage import keeps_its_size, resident_bytes
from support.wire_cases import mutated, seeds

ALLOWED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "UNAVAILABLE"}
"""What `server.errors` has for input that cannot be, and for a deadline that has passed."""
ANSWER_SECS = 60.0
SETTLED = 1000
ON_A_STREAM = 50
"""Messages sent on one stream; the server reads on while fewer than 256 are unanswered."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_models(tmp_path)
    with running(tmp_path, allow_client_shm=True) as one:
        yield one


def survives(server: Server, count: int) -> list[int]:
    """Send the cases; the server's memory in bytes after each SETTLED of them."""
    dice, valid = random.Random(20261121), seeds()
    codes: Counter[str] = Counter()
    bugs: list[str] = []
    sizes = []
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for sent in range(1, count + 1):
            try:
                infer(mutated(dice, dice.choice(valid)), timeout=ANSWER_SECS)
                codes["OK"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1
                bugs += [error.details()] if "This is a bug" in error.details() else []
            if sent % SETTLED == 0:
                sizes.append(resident_bytes(server))
    assert not bugs
    assert codes.keys() <= ALLOWED, codes
    assert codes["OK"] > count // 20
    assert codes["INVALID_ARGUMENT"] > count // 4
    still_serves(server)
    return sizes


def still_serves(server: Server) -> None:
    asked = triton.InferInput("INPUT0", [1, 4], "FP32")
    asked.set_data_from_numpy(np.ones((1, 4), np.float32))
    with triton.InferenceServerClient(server.grpc) as client:
        assert client.infer("echo", [asked]).as_numpy("OUTPUT0").tolist() == [[1.0] * 4]
    assert "Traceback" not in server.log()


def test_the_requests_the_mutations_start_from_are_understood(server: Server) -> None:
    refused = []
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for one in seeds():
            try:
                infer(one, timeout=ANSWER_SECS)
            except grpc.RpcError as error:
                refused.append(error.details())
    assert len(refused) == 1, refused
    assert "region" in refused[0]


def test_two_thousand_mutated_requests_do_no_harm(server: Server) -> None:
    survives(server, 2_000)


@pytest.mark.slow
def test_ten_thousand_mutated_requests_do_no_harm_and_take_no_memory(server: Server) -> None:
    sizes = survives(server, 10_000)
    assert keeps_its_size(sizes), sizes


def test_every_mutated_request_on_a_stream_has_its_own_answer(server: Server) -> None:
    dice, valid = random.Random(7), seeds()
    with grpc.insecure_channel(server.grpc) as channel:
        talk = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        for _ in range(10):
            sent = [mutated(dice, dice.choice(valid)) for _ in range(ON_A_STREAM)]
            answers = list(talk(iter(sent), timeout=ANSWER_SECS))
            assert len(answers) == ON_A_STREAM
            assert not [one for one in answers if "This is a bug" in one.error_message]
    still_serves(server)
