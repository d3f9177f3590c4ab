"""Sampled requests as a job keeps them."""

from control.jobs import traffic
from control.jobs.traffic import TrafficRequest, TrafficTensor, decode_traffic, encode_traffic


def test_the_newest_requests_are_kept_where_not_all_fit() -> None:
    large = TrafficTensor("X", "FP32", (1 << 16,), tuple(range(1 << 16)))
    requests = tuple(TrafficRequest(float(at), (large,)) for at in range(40))
    payload = encode_traffic(requests)
    assert len(payload) <= traffic.MOST_BYTES
    kept = decode_traffic(payload)
    assert 0 < len(kept) < 40
    assert kept == requests[-len(kept) :]
    assert decode_traffic(encode_traffic(requests[:2])) == requests[:2]


def test_values_that_are_no_numbers_are_sent_as_they_were() -> None:
    tensor = TrafficTensor("X", "FP32", (1, 2), (float("inf"), float("nan")))
    (kept,) = decode_traffic(encode_traffic((TrafficRequest(0.0, (tensor,)),)))
    assert str(kept.inputs[0].values) == "(inf, nan)"
