"""Sampled requests, sent again as they came."""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import TrafficRequest, TrafficTensor, encode_traffic
from jobs.tools.profile.replay import arrival_times
from jobs.tools.profile.sampled import sampled_requests
from jobs.tools.work import WorkRefused
from support.tool_sources import digits_source
from support.tools import run_tool


@pytest.fixture
def config() -> pb.ModelConfig:
    tensor = pb.ModelInput(name="X", data_type=pb.TYPE_INT32, dims=[-1])
    return pb.ModelConfig(name="m", max_batch_size=8, input=[tensor])


def written(folder: Path, *tensors: TrafficTensor) -> str:
    requests = tuple(TrafficRequest(float(at), (one,)) for at, one in enumerate(tensors))
    (folder / "traffic.json").write_bytes(encode_traffic(requests))
    return str(folder / "traffic.json")


def test_shapes_and_whole_values_are_sent_as_they_were(
    config: pb.ModelConfig, tmp_path: Path
) -> None:
    wide = TrafficTensor("X", "INT32", (2, 3), (1, 2, 3, 4, 5, 6))
    found = sampled_requests(config, written(tmp_path, wide), 1)
    assert found.requests[0].endswith(np.arange(1, 7, dtype=np.int32).tobytes())
    assert (found.rows, found.drawn) == (2, 0)


def test_values_that_were_not_kept_lie_where_theirs_did(
    config: pb.ModelConfig, tmp_path: Path
) -> None:
    tokens = TrafficTensor("X", "INT32", (4, 500), (), 10.0, 1010.0, 110.0)
    found = sampled_requests(config, written(tmp_path, tokens), 1)
    sent = np.frombuffer(found.requests[0][-8000:], np.int32)
    assert found.drawn == 1
    assert (sent.min() >= 10, sent.max() <= 1010) == (True, True)
    assert sent.mean() == pytest.approx(110, rel=0.2)


def test_requests_with_other_inputs_are_refused(config: pb.ModelConfig, tmp_path: Path) -> None:
    other = TrafficTensor("Y", "INT32", (1, 1), (1,))
    with pytest.raises(WorkRefused, match="has the inputs Y, and this version takes X"):
        sampled_requests(config, written(tmp_path, other), 1)


def test_the_pattern_of_arrivals_repeats_until_the_end() -> None:
    assert arrival_times([5.0, 5.5, 7.0], 1.0, 4.0) == [0.0, 0.5, 2.0, 3.0, 3.5]
    assert arrival_times([5.0, 5.5, 7.0], 2.0, 1.2) == [0.0, 0.25, 1.0]
    assert 0 < len(arrival_times([1.0, 1.0], 1.0, 0.5)) <= 1000


@pytest.mark.slow
def test_a_profile_serves_arrivals_as_they_came(tmp_path: Path) -> None:
    image = TrafficTensor("IMAGE", "FP32", (1, 1, 8, 8), (), 0.0, 1.0, 0.3)
    traffic = tuple(TrafficRequest(at / 50, (image,)) for at in range(50))
    path = tmp_path / "traffic.json"
    path.write_bytes(encode_traffic(traffic))
    spec = ProfileSpec(
        model="digits", version=1, goal="latency", data="sampled", arrivals="sampled", seconds=2.0,
        instances=(1,), batch_sizes=(1, 8), delays_us=(0,), threads=(1,),
    )  # fmt: skip
    run = run_tool(tmp_path / "run", spec, digits_source(tmp_path / "source"), path)
    assert run.report.verdict == "advice"
    assert [one for one in run.report.warnings if one.startswith("50 of 50 sampled requests")]
    # As many as came, not as many as can be answered.
    rates = [float(row[4] or 0) for row in run.report.tables[0].rows]
    assert all(rate < 60 for rate in rates), rates
