"""Metrics: Prometheus text from counters, and the port that serves it."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace

from google.protobuf import text_format

from control.desired import DesiredState, Mirror
from control.health import VersionHealth
from repository.model import ModelConfig
from schedulers.cache import ResponseCache
from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import (
    BatchStatistics,
    SequenceCounters,
    StepCounters,
    TokenCounters,
    counters_of,
)
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.health.monitor import HealthRow
from server.metrics.app import MetricsApp
from server.metrics.drift import OF_DRIFT
from server.metrics.exposition import METRICS, render
from server.metrics.machine_usage import MachineUsage
from server.metrics.version_families import VersionTexts
from server.routing.mirror import RUNNING, WAITING
from server.routing.routing import Routing
from server.served_version import ServingState, VersionRow
from server.settings.metrics_config import MetricsConfig
from support.grpc import IDENTITY, Shelf, put
from support.routing import halves

LAG = SimpleNamespace(max_seconds=0.012, recent_max_seconds=0.003)
LINE = re.compile(r'[a-z_]+(\{[a-z_]\w*="(\\.|[^"\\])*"(,[a-z_]\w*="(\\.|[^"\\])*")*\})? [-+.e\d]+')


async def routed() -> Routing:
    """A route with a mirror that never lets go of a copy."""

    def send(*_: object) -> Reply:
        return Reply()

    routing = Routing(send)
    routing.use(DesiredState(routes=(halves(mirrors=(Mirror("candidate", 10_000),)),)))
    targets = (routing.table["numbers"].copied[0].target,)
    asked = InferRequest("digits", 1, {}, 1, None, 0)
    for _ in range(RUNNING + WAITING + 3):
        routing.mirrors.offer(targets, asked)
        await asyncio.sleep(0)
    return routing


def rendered(prepare=lambda served: None, text=IDENTITY):
    async def main():
        served = put(text)
        prepare(served)
        try:
            texts, routing = VersionTexts(MetricsConfig(histograms=True)), await routed()
            row = VersionRow("identity", 1, ServingState.READY, "")
            health = [HealthRow(row, VersionHealth("FAILING", "errors", "61 of 61", 1.0))]
            return render(
                Shelf([served]), LAG, texts=texts, routing=routing, health=health
            ).decode()
        finally:
            await served.scheduler.close()

    return asyncio.run(main())


def count_some(served):
    counters = served.counters
    counters.success, counters.success_ns = 3, 4_500_000
    counters.failure["BACKEND"] = 2
    counters.inferences, counters.executions = 7, 2
    for duration_ns in (50_000, 100_000, 3_000_000, 60_000_000_000):
        counters.request_histogram.add(duration_ns)
    counters.tokens = TokenCounters(generated_tokens=5)
    counters.tokens.first_token.add(2_000_000)
    counters.sequences = SequenceCounters(live=2, slots=4)
    counters.steps = [StepCounters(0, "cheap", 5, 1, 0, 12, 2, 3, 0, 1_500_000_000)]


def cached(served):
    served.scheduler = CachedScheduler(served.scheduler, ResponseCache(1 << 20), served.counters)


BUCKETS = """model_metrics { metric_control [
    { metric_identifier { family: "nv_inference_first_response_histogram_ms" }
      histogram_options { buckets: [ 100.5, 1500 ] } },
    { metric_identifier { family: "nv_anything_else" } histogram_options { buckets: [ 1 ] } }
] }"""


def test_every_line_is_prometheus_text_and_every_metric_of_the_table_is_there():
    lines = rendered(lambda served: (cached(served), count_some(served))).splitlines()
    for line in lines:
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.fullmatch(line), line
    for metric in set(METRICS) - set(OF_DRIFT):  # `test_drift` has those
        assert f"# TYPE {metric.name} {metric.type}" in lines
        assert any(re.match(rf"{metric.name}(_bucket)?[{{ ]", line) for line in lines), metric.name


def test_what_a_language_model_counts_is_rendered_and_other_models_have_no_such_series():
    text = rendered(count_some)
    label = 'model="identity",version="1"'
    assert f"modelyard_llm_generated_tokens{{{label}}} 5\n" in text
    assert f'modelyard_llm_time_to_first_token_seconds_bucket{{{label},le="0.0025"}} 1\n' in text
    assert "modelyard_llm_generated_tokens{" not in rendered()


def test_what_the_steps_of_an_ensemble_did_is_rendered_by_outcome():
    text = rendered(count_some)
    label = 'model="identity",version="1",step="0",callee="cheap"'
    for outcome, calls in {"answered": 5, "failed": 1, "cancelled": 0, "skipped": 2}.items():
        assert f'modelyard_ensemble_step_calls{{{label},outcome="{outcome}"}} {calls}\n' in text
    assert f"modelyard_ensemble_step_skipped_rows{{{label}}} 3\n" in text
    assert f"modelyard_ensemble_step_seconds{{{label}}} 1.5\n" in text
    assert "modelyard_ensemble_step_calls{" not in rendered()


def test_the_state_of_each_version_is_one_with_the_code_of_its_reason():
    labels = 'model="identity",version="1",state="FAILING",reason_code="errors"'
    assert f"modelyard_model_state{{{labels}}} 1\n" in rendered()


def test_counters_are_rendered_with_model_and_version():
    text = rendered(count_some)
    assert 'nv_inference_request_success{model="identity",version="1"} 3\n' in text
    assert 'nv_inference_count{model="identity",version="1"} 7\n' in text
    assert 'nv_inference_exec_count{model="identity",version="1"} 2\n' in text
    assert 'nv_inference_request_duration_us{model="identity",version="1"} 4500\n' in text
    assert 'nv_model_load_duration_secs{model="identity",version="1"} 0.25\n' in text


def test_instances_are_counted_with_the_time_they_executed():
    def execute(served):
        served.counters.batches[4] = BatchStatistics(2, 500_000_000, 1_000_000_000, 250_000_000)

    text = rendered(execute)
    label = 'model="identity",version="1"'
    assert f"modelyard_instances{{{label}}} 1\n" in text
    assert f"modelyard_instance_busy_seconds{{{label}}} 1.75\n" in text
    assert f"modelyard_instances_hung{{{label}}} 0\n" in text


def test_arms_of_routes_are_counted_and_copies_that_were_dropped() -> None:
    text = rendered()
    stable = 'route="numbers",arm="stable",model="digits",version="1",mirrored="false"'
    copies = 'route="numbers",arm="candidate",model="digits",version="2",mirrored="true"'
    assert f"modelyard_route_requests{{{stable}}} 0\n" in text
    assert f"modelyard_route_in_flight{{{copies}}} {RUNNING}\n" in text
    assert f"modelyard_mirror_dropped{{{copies}}} 3\n" in text


def test_all_four_failure_reasons_exist_from_the_start():
    text = rendered()
    for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
        labels = f'model="identity",reason="{reason}",version="1"'
        assert f"nv_inference_request_failure{{{labels}}} 0\n" in text


def test_only_versions_with_a_response_cache_have_series_of_it():
    assert "nv_cache_" not in rendered()
    assert 'nv_cache_num_hits_per_model{model="identity",version="1"} 0\n' in rendered(cached)


def test_model_metrics_choose_the_buckets_of_tritons_histogram_and_of_no_other():
    def count(served):
        config = text_format.Parse(BUCKETS, ModelConfig())
        served.counters.request_histogram = counters_of(config).request_histogram
        for duration_ms in (50, 150, 1_500, 60_000):
            served.counters.request_histogram.add(duration_ms * 1_000_000)

    text = rendered(count)
    name = "nv_inference_first_response_histogram_ms"
    label = 'model="identity",version="1"'
    found = re.findall(rf'{name}_bucket{{{label},le="([^"]+)"}} (\d+)', text)
    assert found == [("100.5", "1"), ("1500", "3"), ("+Inf", "4")]
    assert f"{name}_count{{{label}}} 4\n" in text
    assert f'modelyard_request_duration_seconds_bucket{{{label},le="0.05"}} 1\n' in text


def test_histogram_buckets_are_cumulative_and_end_with_the_count():
    text = rendered(count_some)
    name = "modelyard_request_duration_seconds"
    label = 'model="identity",version="1"'
    found = re.findall(rf'{name}_bucket{{{label},le="([^"]+)"}} (\d+)', text)
    assert found[0] == ("0.0001", "2")
    assert dict(found)["0.0025"] == "2"
    assert dict(found)["0.005"] == "3"
    assert found[-1] == ("+Inf", "4")
    assert f"{name}_count{{{label}}} 4\n" in text
    assert f"{name}_sum{{{label}}} 60.00315\n" in text


def test_metric_tags_are_labels_with_an_underscore_and_escaped_values():
    tag = 'metric_tags { key: "te-am" value: "a\\"b\\\\c\\nd" }'
    text = rendered(text=IDENTITY + tag)
    assert r'{_te_am="a\"b\\c\nd",model="identity",version="1"} 0' in text


def test_event_loop_stalls_are_gauges():
    text = rendered()
    assert "modelyard_event_loop_stall_seconds_max 0.012\n" in text
    assert "modelyard_event_loop_stall_seconds_recent_max 0.003\n" in text


def test_cpu_utilization_is_that_between_two_looks(tmp_path: Path):
    machine = MachineUsage(tmp_path)
    (tmp_path / "stat").write_text("cpu 100 0 0 100 0 0 0 0 0 0\n")
    machine.look()
    (tmp_path / "stat").write_text("cpu 130 0 0 160 10 0 0 0 0 0\n")
    machine.look()
    assert round(machine.cpu_utilization(), 6) == 0.3


def test_figures_are_left_out_where_there_is_no_proc(tmp_path: Path):
    machine = MachineUsage(tmp_path / "nowhere")
    text = render(Shelf([]), LAG, machine).decode()
    assert "nv_cpu_utilization" not in text
    assert "process_resident_memory_bytes" not in text


def asked(path, method="GET"):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    app = MetricsApp(Shelf([]), LAG)
    asyncio.run(app({"type": "http", "path": path, "method": method}, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_metrics_are_served_at_their_path_and_nowhere_else():
    status, headers, body = asked("/metrics")
    assert status == 200
    assert headers[b"content-type"].startswith(b"text/plain;")
    assert headers[b"content-type"].endswith(b"charset=utf-8")
    assert b"nv_inference_request_success" in body
    assert asked("/")[0] == 404
    assert asked("/metrics", "POST")[0] == 405
    assert asked("/metrics", "HEAD")[2] == b""
