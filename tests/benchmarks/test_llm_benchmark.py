"""The language benchmark's own arithmetic: what it asks for, and what it makes of the answers."""

import math
from dataclasses import replace

from benchmarks.llm_figures import Heard, figures, of_peer
from benchmarks.llm_workloads import at_once, poisson, prefix_heavy

VOCABULARY = 32_000


def test_tokens_count_of_answered_requests_only() -> None:
    heard = [Heard(200, (0.1, 0.3), 2, 0.0, 0.3), Heard(429, (), 0, 0.0, 0.1)]
    found = figures(heard, wall_s=0.5)
    assert found.tokens_per_s == 4
    assert math.isclose(found.ttft_p50_ms, 100)
    assert math.isclose(found.itl_p99_ms, 200)


def test_a_peer_that_does_not_stream_has_throughput_and_no_latencies() -> None:
    found = of_peer({"arrivals": [], "tokens": [10, 20], "wall_s": 3.0, "cpu_s": 5.0})
    assert found.tokens_per_s == 10
    assert math.isnan(found.ttft_p50_ms)
    assert found.cpu_s == 5.0


def test_the_workload_is_the_same_every_time_and_within_its_lengths() -> None:
    asks = at_once(32, VOCABULARY)
    assert asks == at_once(32, VOCABULARY)
    greedy = at_once(32, VOCABULARY, sampling="greedy")
    assert asks == [replace(ask, sampling="top-p") for ask in greedy] != greedy
    assert all(64 <= len(ask.prompt) <= 256 and 64 <= ask.tokens <= 128 for ask in asks)


def test_prompts_share_their_beginnings_or_not_one_block_of_them() -> None:
    shared, apart = (prefix_heavy(VOCABULARY, share, users=2) for share in (True, False))
    assert len(shared) == len(apart) == 8 * 2 * 4
    assert len({ask.prompt[:512] for ask in shared}) == 8
    assert len({ask.prompt[:16] for ask in apart}) == len(apart)
    assert [len(ask.prompt) for ask in shared] == [len(ask.prompt) for ask in apart]


def test_arrivals_of_an_overload_come_at_the_rate_asked_for() -> None:
    asks = poisson(50, 20, VOCABULARY)
    assert 800 < len(asks) < 1200
    assert all(0 < ask.at_s < 20 for ask in asks)
