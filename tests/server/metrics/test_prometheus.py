"""Prometheus itself scrapes a server, and the queries of our documentation find their series."""

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from support.server import free_ports, identity_config, running, write_identity

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
    if shutil.which("prometheus") is None:
        missing = "prometheus is not installed; ./dev test --all installs it as root"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
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


@contextmanager
def scraping(target, folder):
    (port,) = free_ports(1)
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: modelyard, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    address = f"127.0.0.1:{port}"
    command = ["prometheus", f"--config.file={config}", f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"],
            stdout=log,
            stderr=log,
        )
    try:
        yield address
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_found(address, infer, text):
    """Ask the model again and again meanwhile: a scrape of a busy machine may come too late."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        infer()
        if found := query(address, text):
            return found
        time.sleep(0.05)
    return []


def query(address, text):
    """The series a query finds; none while Prometheus is starting."""
    url = f"http://{address}/api/v1/query?{urlencode({'query': text})}"
    try:
        with urlopen(url, timeout=60) as reply:
            return json.load(reply)["data"]["result"]
    except (URLError, ConnectionError):
        return []


@pytest.mark.parametrize("what", QUERIES)
def test_a_documented_query_finds_its_series(prometheus, what):
    assert prometheus(QUERIES[what])
