"""The panels of the Grafana dashboard: title, meaning, unit, queries.

`docs.write_dashboard` lays them out, three in a line.
"""

from dataclasses import dataclass

_SUCCEEDED = "nv_inference_request_success"
_FAILED = "nv_inference_request_failure"
_BLOCKS = "modelyard_llm_blocks"


@dataclass(frozen=True)
class Panel:
    """A chart. `queries`: expression and legend of each; `<m>` and `<s>` select what the
    variables choose, `<r>` is the window of a rate."""

    title: str
    text: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stacked: bool = False
    kind: str = "timeseries"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{<m>}}[<r>]))"


def _quantile(share: float, metric: str, by: str = "model") -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', f'{by}, le')})"


def _mean(total: str, count: str, by: str = "model, version") -> str:
    return f"{_rate(total, by)} / {_rate(count, by)}"


def _of_arms(by: str) -> str:
    return f'sum by ({by}) (rate(modelyard_route_requests{{<s>,mirrored="false"}}[<r>]))'


_VERSION = "{{model}} {{version}}"
_ARM = "{{route}} {{arm}}: {{model}} {{version}}"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel(
                "Requests", "Answered requests a second, by model.", "reqps",
                ((_rate(_SUCCEEDED, "model"), "{{model}}"),), stacked=True,
            ),
            Panel(
                "Failures by reason",
                "REJECTED: a full queue; CANCELED: the client went; BACKEND: the model failed.",
                "reqps", ((_rate(_FAILED, "model, reason"), "{{model}} {{reason}}"),), stacked=True,
            ),
            Panel(
                "Versions that are not well",
                "Each with its state and the reason's code, as docs/health.md has them.",
                "none",
                (
                    (
                        'modelyard_model_state{<m>,state!="READY"}',
                        "{{model}} {{version}} {{state}} {{reason_code}}",
                    ),
                ),
                kind="table",
            ),
        ),
    ),
    (
        "Latency",
        tuple(
            Panel(
                f"Latency p{round(share * 100)}",
                "Of successful requests, from arrival to answer.", "s",
                ((_quantile(share, "modelyard_request_duration_seconds"), "{{model}}"),),
            )
            for share in (0.5, 0.95, 0.99)
        ),
    ),
    (
        "Where the time goes",
        (
            Panel(
                "Queue and compute", "Mean of a successful request, by version.", "µs",
                (
                    (
                        _mean("nv_inference_queue_duration_us", _SUCCEEDED),
                        f"{_VERSION} queue",
                    ),
                    (
                        _mean("nv_inference_compute_infer_duration_us", _SUCCEEDED),
                        f"{_VERSION} compute",
                    ),
                ),
            ),
            Panel(
                "Queue p95", "How long requests wait before they are executed.", "s",
                ((_quantile(0.95, "modelyard_queue_duration_seconds"), "{{model}}"),),
            ),
            Panel(
                "Waiting requests", "Queued now, and not yet executing.", "short",
                (("sum by (model, version) (nv_inference_pending_request_count{<m>})", _VERSION),),
            ),
            Panel(
                "Rows in a batch", "Inferences of an execution, on average.", "short",
                ((_mean("nv_inference_count", "nv_inference_exec_count"), _VERSION),),
            ),
            Panel(
                "Instances busy",
                "How many instances execute, on average, and how many there are.", "short",
                (
                    (
                        _rate("modelyard_instance_busy_seconds", "model, version"),
                        f"{_VERSION} busy",
                    ),
                    (
                        "sum by (model, version) (modelyard_instances{<m>})",
                        f"{_VERSION} ready",
                    ),
                ),
            ),
            Panel(
                "Response cache", "Share of requests that were answered from it.", "percentunit",
                (
                    (
                        f"{_rate('nv_cache_num_hits_per_model', 'model')} / "
                        f"({_rate('nv_cache_num_hits_per_model', 'model')} + "
                        f"{_rate('nv_cache_num_misses_per_model', 'model')})",
                        "{{model}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Versions, routes and rollouts",
        (
            Panel(
                "Requests by version", "A new version that takes over.", "reqps",
                ((_rate(_SUCCEEDED, "model, version"), _VERSION),), stacked=True,
            ),
            Panel(
                "Share of each arm", "Of a route's requests; a rollout's steps show here.",
                "percentunit",
                (
                    (
                        f"{_of_arms('route, arm, model, version')} / on (route) group_left "
                        f"{_of_arms('route')}",
                        _ARM,
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Errors by arm", "Share of an arm's requests that failed.", "percentunit",
                (
                    (
                        "sum by (route, arm, model, version) "
                        "(rate(modelyard_route_errors{<s>}[<r>])) / "
                        "sum by (route, arm, model, version) "
                        "(rate(modelyard_route_requests{<s>}[<r>]))",
                        _ARM,
                    ),
                ),
            ),
            Panel(
                "Latency p95 by version", "Candidate beside stable.", "s",
                (
                    (
                        _quantile(0.95, "modelyard_request_duration_seconds", "model, version"),
                        _VERSION,
                    ),
                ),
            ),
            Panel(
                "Mirrored requests", "Sent to a mirror's target, or dropped where it is behind.",
                "reqps",
                (
                    (
                        "sum by (route, model, version) "
                        '(rate(modelyard_route_requests{<s>,mirrored="true"}[<r>]))',
                        "{{route}} to {{model}} {{version}}",
                    ),
                    (
                        "sum by (route, model, version) (rate(modelyard_mirror_dropped{<s>}[<r>]))",
                        "{{route}} to {{model}} {{version}} dropped",
                    ),
                ),
            ),
            Panel(
                "Seconds to load", "What checking, loading and warming each version took.", "s",
                (("nv_model_load_duration_secs{<m>}", _VERSION),), kind="bargauge",
            ),
        ),
    ),
    (
        "Language models",
        (
            Panel(
                "Tokens", "Prompt tokens computed and tokens generated, a second.", "short",
                (
                    (_rate("modelyard_llm_generated_tokens", "model"), "{{model}} generated"),
                    (_rate("modelyard_llm_prompt_tokens", "model"), "{{model}} prompt"),
                ),
            ),
            Panel(
                "Time to first token", "From a request's arrival.", "s",
                tuple(
                    (
                        _quantile(share, "modelyard_llm_time_to_first_token_seconds"),
                        f"{{{{model}}}} p{round(share * 100)}",
                    )
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "Time between tokens", "Of one answer.", "s",
                tuple(
                    (
                        _quantile(share, "modelyard_llm_inter_token_seconds"),
                        f"{{{{model}}}} p{round(share * 100)}",
                    )
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "KV cache in use", "Share of the blocks that running answers hold.", "percentunit",
                (
                    (
                        f"sum by (model, version) ({_BLOCKS}_in_use{{<m>}}) / "
                        f"sum by (model, version) ({_BLOCKS}_in_use{{<m>}} + "
                        f"{_BLOCKS}_cached{{<m>}} + {_BLOCKS}_empty{{<m>}})",
                        _VERSION,
                    ),
                ),
            ),
            Panel(
                "Answers running and waiting", "Waiting ones hold no block yet.", "short",
                (
                    ("sum by (model) (modelyard_llm_running{<m>})", "{{model}} running"),
                    ("sum by (model) (modelyard_llm_waiting{<m>})", "{{model}} waiting"),
                ),
            ),
            Panel(
                "Prefix cache and preemptions",
                "Share of prompt tokens that the cache had; answers preempted a second.", "none",
                (
                    (
                        f"{_rate('modelyard_llm_prefix_hit_tokens', 'model')} / "
                        f"({_rate('modelyard_llm_prefix_hit_tokens', 'model')} + "
                        f"{_rate('modelyard_llm_prompt_tokens', 'model')})",
                        "{{model}} prefix hits",
                    ),
                    (_rate("modelyard_llm_preemptions", "model"), "{{model}} preemptions"),
                ),
            ),
        ),
    ),
    (
        "Servers",
        (
            Panel(
                "Memory by version", "Granted of the budget, and the budget.", "bytes",
                (
                    (
                        "sum by (device, holder) (modelyard_memory_granted_bytes{<s>})",
                        "{{device}} {{holder}}",
                    ),
                    ("sum by (device) (modelyard_memory_budget_bytes{<s>})", "{{device}} budget"),
                ),
            ),
            Panel(
                "Loads on demand and evictions",
                "Each second; both high together: models that evict each other.", "none",
                (
                    (
                        "sum by (model) (rate(modelyard_evictions{<s>}[<r>]))",
                        "{{model}} evictions",
                    ),
                    (
                        "sum by (instance) (rate(modelyard_cold_start_seconds_count{<s>}[<r>]))",
                        "{{instance}} cold starts",
                    ),
                    (
                        "sum by (instance) (modelyard_on_demand_waiting{<s>})",
                        "{{instance}} waiting",
                    ),
                ),
            ),
            Panel(
                "Memory of machine and server", "Used on the machine, and by the serving process.",
                "bytes",
                (
                    ("nv_cpu_memory_used_bytes{<s>}", "{{instance}} used"),
                    ("process_resident_memory_bytes{<s>}", "{{instance}} server"),
                ),
            ),
            Panel(
                "CPU of the machine", "Share in use.", "percentunit",
                (("nv_cpu_utilization{<s>}", "{{instance}}"),),
            ),
            Panel(
                "Longest stall of the event loop", "In the last minute; every request waits then.",
                "s", (("modelyard_event_loop_stall_seconds_recent_max{<s>}", "{{instance}}"),),
            ),
            Panel(
                "Servers", "1: scraped; 0: not.", "none",
                (('up{job="modelyard",<s>}', "{{instance}}"),), kind="stat",
            ),
            Panel(
                "Hanging instances and lost traces", "Neither should be above 0.", "short",
                (
                    ("sum by (model, version) (modelyard_instances_hung{<m>})", f"{_VERSION} hung"),
                    ("rate(modelyard_traces_dropped{<s>}[<r>])", "{{instance}} traces a second"),
                ),
            ),
        ),
    ),
    (
        "Drift",
        (
            Panel(
                "PSI by feature",
                "Population stability index of a watched feature against its reference, less what "
                "chance makes of it; the ten highest. The console's page Drift of the model has "
                "the charts.",
                "short",
                (
                    (
                        "topk(10, max by (model, version, feature) (modelyard_drift_psi{<m>}))",
                        f"{_VERSION} {{{{feature}}}}",
                    ),
                ),
            ),
            Panel(
                "KS distance by feature",
                "Kolmogorov-Smirnov distance of a watched numeric feature from its reference, 0 "
                "to 1; the ten highest.",
                "short",
                (
                    (
                        "topk(10, max by (model, version, feature) (modelyard_drift_ks{<m>}))",
                        f"{_VERSION} {{{{feature}}}}",
                    ),
                ),
            ),
            Panel(
                "Features that have drifted",
                "By their limits and corrected p-values; ModelyardModelDrifted is the alert.",
                "short",
                (
                    (
                        "sum by (model, version) (max by (model, version, feature) "
                        "(modelyard_drift_detected{<m>}))",
                        _VERSION,
                    ),
                ),
            ),
        ),
    ),
)  # fmt: skip
