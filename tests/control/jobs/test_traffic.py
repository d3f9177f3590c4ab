"""Sampled requests as a job keeps them."""

from control.jobs import traffic
from control.jobs.traffic import TrafficRequest, TrafficTensor, decode_traffic, encode_traffic


def test_the_newest_requests_are_kept_where_not_all_fit() -> None:
    large = TrafficTensor("X", "FP32", (1 << 16,), tuple(range(1 << 16)))
    requests = tuple(TrafficRequest(float(at), (large,)) for at in range(20))
    payload = encode_traffic(requests)
    assert len(payload) <= traffic.MOST_BYTES
    kept = decode_traffic(payload)
    assert 0 < len(kept) < 20
    assert kept == requests[-len(kept) :]
    assert decode_traffic(encode_traffic(requests[:2])) == requests[:2]
