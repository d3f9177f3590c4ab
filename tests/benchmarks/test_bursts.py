"""What one kind of request takes above another: a real server, asked in turns."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bursts import PASSES, compare, grpc_asker, rest_asker
from benchmarks.models import identity_problem
from benchmarks.shots import Shot, WrongAnswer, grpc_shot, json_shot
from support.server import Server, running, write_identity


def shot(name: str) -> Shot:
    return json_shot(identity_problem(name))


def test_what_takes_more_is_found_out_and_every_other_round_goes_backwards() -> None:
    asked: list[str] = []

    def ask(shots: Sequence[Shot]) -> None:
        (one,) = shots
        asked.append(one.problem.model)
        if one.problem.model == "dear":
            np.sort(np.random.default_rng(0).random(300_000))

    shots = {"cheap": (shot("cheap"),), "dear": (shot("dear"),)}
    pairs = (("dear", "cheap"),)
    found = compare((os.getpid(),), ask, shots, pairs, concurrency=1, rounds=6)
    assert found["dear", "cheap"].us.lower > 0
    there = ["cheap"] * PASSES + ["dear"] * PASSES
    assert asked == ["cheap", "dear", *(there + there[::-1]) * 3]


CONFIG = """
backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
"""


def test_a_server_is_asked_on_every_connection_over_both_wires(tmp_path: Path) -> None:
    write_identity(tmp_path, "one", config=CONFIG)
    with running(tmp_path) as server:
        for wire, (shot_of, asker, address) in enumerate(
            ((json_shot, rest_asker, server.http), (grpc_shot, grpc_asker, server.grpc))
        ):
            with asker(address, 5) as ask:
                ask([shot_of(identity_problem("one"))])
                assert answered(server) == 5 * (wire + 1)
                with pytest.raises(WrongAnswer, match="unknown model"):
                    ask([shot_of(identity_problem("none"))])


def answered(server: Server) -> int:
    (stats,) = json.loads(server.get("/v2/models/one/stats")[1])["model_stats"]
    return int(stats["inference_count"])
