"""A flood of wrong tokens: the gateway refuses it by itself, and nobody else feels it."""

import http.client
import os
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton

from support.access import gated, grant
from support.flood import flood
from support.http import INFER, infer_body

SECONDS = 4.0
MOST_GROWTH_BYTES = 16 * 2**20
"""When a kilobyte of each refusal was kept, it was 25 MiB."""
LEAST_REFUSED = 2_000
WARM = 50


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_flood_of_wrong_tokens_is_refused_in_bounded_memory_and_hurts_nobody() -> None:
    with gated(True, *(grant(f"good-{number}") for number in range(1000))) as listeners:
        key = {"authorization": "Bearer good-7"}
        line = http.client.HTTPConnection("127.0.0.1", listeners.http_port, timeout=60)
        asked = triton.InferInput("INPUT0", [1, 1], "FP32")
        asked.set_data_from_numpy(np.ones((1, 1), np.float32))
        answered, before = 0, 0
        with (
            triton.InferenceServerClient(listeners.grpc) as client,
            flood(listeners.http_port, listeners.grpc_port, SECONDS, 2 * LEAST_REFUSED) as wrong,
        ):
            while wrong.running():
                line.request("POST", INFER, infer_body(), key)
                response = line.getresponse()
                assert response.status == 200, response.read()
                response.read()
                assert client.infer("echo", [asked], headers=key, client_timeout=60)
                answered += 1
                before = resident_bytes() if answered == WARM else before
            told = wrong.ended()
            growth = resident_bytes() - before
        line.close()
        assert listeners.on_loop(lambda: len(listeners.dataplane.authorizer._holders)) == 1000
    ways = ("rest lasting 401", "rest new 401", "grpc lasting UNAUTHENTICATED")
    assert set(told) == {*ways, "grpc new UNAUTHENTICATED"}, told
    assert sum(told.values()) > LEAST_REFUSED, told
    assert answered > WARM
    assert growth < MOST_GROWTH_BYTES
