"""Sampled requests, sent again as they came."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import TrafficRequest, TrafficTensor, encode_traffic
from jobs.tools.profile import sampled
from jobs.tools.profile.replay import arrivals_of, replay
from jobs.tools.profile.report_warnings import warnings_of
from jobs.tools.profile.sampled import TrialRequests, sampled_requests
from jobs.tools.work import WorkRefused
from support.tool_sources import digits_source
from support.tools import run_tool


@pytest.fixture
def config() -> pb.ModelConfig:
    tensor = pb.ModelInput(name="X", data_type=pb.TYPE_INT32, dims=[-1])
    return pb.ModelConfig(name="m", max_batch_size=8, input=[tensor])


def written(folder: Path, *tensors: TrafficTensor) -> str:
    """Each 20 times, as many as a profile needs."""
    requests = tuple(TrafficRequest(float(at), (one,)) for one in tensors for at in range(20))
    (folder / "traffic.json").write_bytes(encode_traffic(requests))
    return str(folder / "traffic.json")


def test_shapes_and_whole_values_are_sent_as_they_were(
    config: pb.ModelConfig, tmp_path: Path
) -> None:
    wide = TrafficTensor("X", "INT32", (2, 3), (1, 2, 3, 4, 5, 6))
    found = sampled_requests(config, written(tmp_path, wide), 1)
    assert found.requests[0].endswith(np.arange(1, 7, dtype=np.int32).tobytes())
    assert (found.rows, found.drawn, found.zeros) == (2, 0, 0)


def test_values_that_were_not_kept_lie_where_theirs_did(
    config: pb.ModelConfig, tmp_path: Path
) -> None:
    tokens = TrafficTensor("X", "INT32", (4, 500), (), 10.0, 1010.0, 110.0)
    found = sampled_requests(config, written(tmp_path, tokens), 1)
    sent = np.frombuffer(found.requests[0][-8000:], np.int32)
    assert (found.drawn, found.zeros) == (20, 0)
    assert (sent.min() >= 10, sent.max() <= 1010) == (True, True)
    assert sent.mean() == pytest.approx(110, rel=0.2)


def test_values_of_which_nothing_was_kept_are_zeros_and_said_to_be(
    config: pb.ModelConfig, tmp_path: Path
) -> None:
    few = TrafficTensor("X", "INT32", (1, 3))
    found = sampled_requests(config, written(tmp_path, few), 1)
    assert found.requests[0].endswith(bytes(12))
    assert (found.drawn, found.zeros) == (0, 20)
    (_, warning) = warnings_of(ProfileSpec(model="m"), found, has_data=True)
    assert warning.startswith("20 of 20 sampled requests were sent with zeros for an input")


FITS = TrafficTensor("X", "INT32", (1, 1), (1,))


@pytest.mark.parametrize(
    "other",
    [
        TrafficTensor("Y", "INT32", (1, 1), (1,)),
        TrafficTensor("X", "INT64", (1, 1), (1 << 40,)),
        TrafficTensor("X", "FP32", (1, 1), (float("nan"),)),
        TrafficTensor("X", "INT32", (1, 1, 1), (1,)),
    ],
)
def test_requests_to_another_version_are_left_out_and_refused_where_too_few_remain(
    config: pb.ModelConfig, tmp_path: Path, other: TrafficTensor
) -> None:
    found = sampled_requests(config, written(tmp_path, other, FITS), 1)
    assert (len(found.requests), found.unfit) == (20, 20)
    (_, warning) = warnings_of(ProfileSpec(model="m"), found, has_data=True)
    assert warning.startswith("20 sampled requests were left out: their inputs have other names")
    refused = f"0 of 20 sampled .* takes 'X' INT32 .* brought '{other.name}' {other.datatype}"
    with pytest.raises(WorkRefused, match=refused):
        sampled_requests(config, written(tmp_path, other), 1)


def test_the_newest_that_fit_into_the_bound_of_all_bodies_are_sent(
    config: pb.ModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "MOST_BYTES", 100)
    old, new = (TrafficTensor("X", "INT32", (1, 2), (one, one)) for one in (1, 2))
    found = sampled_requests(config, written(tmp_path, old, new), 1)
    assert (len(found.requests), found.too_large) == (12, 28)
    assert all(one.endswith(b"\2\0\0\0\2\0\0\0") for one in found.requests)
    (_, warning) = warnings_of(ProfileSpec(model="m"), found, has_data=True)
    assert warning.startswith("the oldest 28 sampled requests were left out")


def test_the_pattern_of_arrivals_repeats_until_the_end() -> None:
    came = [5.0, 5.5, 7.0]
    found = [(0, 0.0), (1, 0.5), (2, 2.0), (0, 3.0), (1, 3.5)]
    assert arrivals_of(came, 1.0, 4.0) == found
    assert arrivals_of(came, 2.0, 1.2) == [(0, 0.0), (1, 0.25), (2, 1.0)]
    assert 0 < len(arrivals_of([1.0, 1.0], 1.0, 0.5)) <= 1000


def test_of_a_longer_pattern_the_newest_arrivals_are_sent_which_the_report_says() -> None:
    came = [0.0, 0.5, 9.0, 9.75, 10.0]
    assert arrivals_of(came, 1.0, 2.0) == [(2, 1.0), (3, 1.75), (4, 2.0)]
    assert arrivals_of(came, 4.0, 0.5) == [(2, 0.25), (3, 0.4375), (4, 0.5)]
    spec = ProfileSpec(model="m", arrivals="sampled", seconds=1.5)
    (_, warning) = warnings_of(spec, TrialRequests([b""] * 5, came, 1), has_data=True)
    assert warning.startswith(
        "5 sampled requests came in 10.0 s, 0.4 a second; the newest 3 of them were sent again, "
        "from the same 2.0 s, 1 times as fast"
    )


def test_a_server_that_is_slower_than_the_arrivals_ends_the_load_with_requests_missed(
    tmp_path: Path,
) -> None:
    came = [one / 400_000 for one in range(400)]
    with one_answer_server(tmp_path / "socket") as address:
        load = replay(address, [b"request"] * len(came), came, 1.0, 1, 0.2)
    due = len(arrivals_of(came, 1.0, 0.7))
    assert (load.errors, load.answers + load.missed) == (0, due)
    assert load.missed > due / 2


@contextmanager
def one_answer_server(path: Path) -> Iterator[str]:
    """Answers whatever one connection sends, one message after the other."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            while connection.recv(1024):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=answer)
        thread.start()
        yield str(path)
        thread.join()


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
