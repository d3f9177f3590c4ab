"""Prometheus itself scrapes a server, and the queries of our documentation find their series."""

from functools import partial

import pytest

from support.prometheus import scraping, until_found
from support.server import identity_config, running, write_identity
from support.tls_proxy import command_of

MODEL = 'model="identity",version="1"'
QUERIES = {
    "success": f"nv_inference_request_success{{{MODEL}}} > 0",
    "rejected": f'nv_inference_request_failure{{{MODEL},reason="REJECTED"}}',
    "cancelled": f'nv_inference_request_failure{{{MODEL},reason="CANCELED"}}',
    "failed in the model": f'nv_inference_request_failure{{{MODEL},reason="BACKEND"}}',
    "failed otherwise": f'nv_inference_request_failure{{{MODEL},reason="OTHER"}}',
    "inferences": f"nv_inference_count{{{MODEL}}} > 0",
    "executions": f"nv_inference_exec_count{{{MODEL}}} > 0",
    "pending": f"nv_inference_pending_request_count{{{MODEL}}}",
    "queue time": f"rate(nv_inference_queue_duration_us{{{MODEL}}}[30s]) > 0",
    "compute input time": f"nv_inference_compute_input_duration_us{{{MODEL}}}",
    "compute time": f"rate(nv_inference_compute_infer_duration_us{{{MODEL}}}[30s]) > 0",
    "compute output time": f"nv_inference_compute_output_duration_us{{{MODEL}}}",
    "99th percentile": (
        "histogram_quantile(0.99, sum by (model, le) "
        "(rate(modelyard_request_duration_seconds_bucket[30s]))) > 0"
    ),
    "cache hits": 'nv_cache_num_hits_per_model{model="cached",version="1"} > 0',
    "cache misses": 'nv_cache_num_misses_per_model{model="cached",version="1"} > 0',
    "CPU": "nv_cpu_utilization >= 0",
    "memory": "nv_cpu_memory_used_bytes > 0",
    "memory of the machine": "nv_cpu_memory_total_bytes > 0",
    "the scrape itself": "up == 1",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Asks a Prometheus that scrapes a server whose two models answer, until a query finds what
    it looks for; its series, none after a minute."""
    command_of("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    models = folder / "models"
    write_identity(models, "identity", 1)
    cached = identity_config("cached", extra="response_cache { enable: true }")
    write_identity(models, "cached", 1, config=cached)
    with (
        running(models, cache_config="local,size=1048576") as server,
        scraping(server.metrics, folder) as address,
    ):
        found = partial(until_found, address, partial(infer_both, server))
        assert found('changes(nv_inference_request_success{model="cached"}[30s]) >= 3')
        yield found


def infer_both(server):
    body = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    for model in ("identity", "cached"):
        status, answer = server.post(f"/v2/models/{model}/infer", {"inputs": [body]})
        assert status == 200, answer


@pytest.mark.parametrize("what", QUERIES)
def test_a_documented_query_finds_its_series(prometheus, what):
    assert prometheus(QUERIES[what])
