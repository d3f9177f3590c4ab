"""Every flag of Triton's `tritonserver`, and what becomes of it here. Pure tables.

A flag that is one of our settings under the same name stands in no other table: it is that
setting. `docs/triton-flags.md` is written from here, `server.cli.tritonserver` acts on it.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from server.settings.row import Setting
from server.settings.table import TABLE

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Server": ("id", "exit-timeout-secs"),
    "Logging": (
        "log-verbose", "log-info", "log-warning", "log-error", "log-format", "log-file",
    ),
    "Model repository": (
        "model-store", "model-repository", "exit-on-error", "disable-auto-complete-config",
        "strict-readiness", "model-control-mode", "repository-poll-secs", "load-model",
        "model-load-thread-count", "model-load-retry-count", "model-namespacing",
        "model-config-name",
    ),
    "HTTP": (
        "allow-http", "http-address", "http-port", "reuse-http-port",
        "http-header-forward-pattern", "http-thread-count", "http-max-input-size",
        "http-restricted-api",
    ),
    "gRPC": (
        "allow-grpc", "grpc-address", "grpc-port", "reuse-grpc-port",
        "grpc-header-forward-pattern", "grpc-infer-allocation-pool-size",
        "grpc-max-response-pool-size", "grpc-use-ssl", "grpc-use-ssl-mutual", "grpc-server-cert",
        "grpc-server-key", "grpc-root-cert", "grpc-infer-response-compression-level",
        "grpc-keepalive-time", "grpc-keepalive-timeout", "grpc-keepalive-permit-without-calls",
        "grpc-http2-max-pings-without-data", "grpc-http2-min-recv-ping-interval-without-data",
        "grpc-http2-max-ping-strikes", "grpc-max-connection-age",
        "grpc-max-connection-age-grace", "grpc-restricted-protocol",
    ),
    "Shared memory": ("allow-client-shm",),
    "SageMaker": (
        "allow-sagemaker", "sagemaker-port", "sagemaker-safe-port-range",
        "sagemaker-thread-count",
    ),
    "Vertex AI": (
        "allow-vertex-ai", "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model",
    ),
    "Metrics": (
        "allow-metrics", "allow-gpu-metrics", "allow-cpu-metrics", "metrics-address",
        "metrics-port", "metrics-interval-ms", "metrics-config",
    ),
    "Tracing": ("trace-config",),
    "Backends": ("backend-directory", "backend-config"),
    "Repository agents": ("repoagent-directory",),
    "Response cache": ("cache-config", "cache-directory"),
    "Rate limiter": ("rate-limit", "rate-limit-resource"),
    "Memory and devices": (
        "pinned-memory-pool-byte-size", "cuda-memory-pool-byte-size",
        "cuda-virtual-address-size", "min-supported-compute-capability",
        "buffer-manager-thread-count", "host-policy", "model-load-gpu-limit",
        "enable-peer-access",
    ),
    "Deprecated by Triton": (
        "strict-model-config", "response-cache-byte-size", "trace-file", "trace-level",
        "trace-rate", "trace-count", "trace-log-frequency",
    ),
}  # fmt: skip
"""Triton's flags in the groups of its help."""

DEFAULTS: Mapping[str, str] = {
    "id": "triton",
    "model_control_mode": "none",
    "exit_on_error": "true",
    "log_format": "triton",
}
"""Settings whose default differs under `tritonserver`, because Triton's does."""


class FlagTranslation(NamedTuple):
    """What a flag's value means: a value of a setting, or (no setting) something to tell.

    `allowed` completes "'x' is not …" for the flag, where that is less than the setting takes."""

    setting: str = ""
    value: str = ""
    note: str = ""
    allowed: str = ""


class FlagSupport(StrEnum):
    SETTING = "setting"
    TRANSLATED = "translated"
    IGNORED = "ignored"


class UnsupportedFlagValue(Exception):
    """A flag's value asks for what this server does not do; the message says what would work."""


def _log_format(value: str) -> FlagTranslation:
    return FlagTranslation("log_format", "triton" if value.lower() == "default" else value)


def _log_verbose(value: str) -> FlagTranslation:
    return FlagTranslation("log_verbose", {"true": "1", "false": "0"}.get(value.lower(), value))


def _backend_config(value: str) -> FlagTranslation:
    name, _, number = value.partition("=")
    if name in ("default-max-batch-size", "onnxruntime,default-max-batch-size"):
        return FlagTranslation("default_max_batch_size", number)
    return FlagTranslation(
        note=f"--backend-config={value}: this server's backends have no such option"
    )


def _to_trace(key: str, allowed: str) -> Callable[[str], FlagTranslation]:
    return lambda value: FlagTranslation("trace_config", f"{key}={value}", allowed=allowed)


def _only(accepted: tuple[str, ...], instead: str) -> Callable[[str], FlagTranslation]:
    """A flag that may be given as long as it asks for nothing."""

    def translate(value: str) -> FlagTranslation:
        if value.lower() not in accepted:
            raise UnsupportedFlagValue(f"'{value}' is not offered; {instead}")
        return FlagTranslation()

    return translate


def _metrics_config(value: str) -> FlagTranslation:
    if value.startswith("summary_"):
        return FlagTranslation(
            note=f"--metrics-config={value}: there are no summaries; use the histograms"
        )
    return FlagTranslation("metrics_config", value)


_NO = ("false", "off", "0", "no")
_ENDPOINT = "the REST listener answers the same requests at /v2/models/NAME/infer"

TRANSLATED: Mapping[str, tuple[str, Callable[[str], FlagTranslation]]] = {
    "model-store": (
        "`--model-repository`",
        lambda value: FlagTranslation("model_repository", value),
    ),
    "log-format": ("`--log-format`: `default` is `triton`", _log_format),
    "log-verbose": ("`--log-verbose`; true is 1", _log_verbose),
    "strict-model-config": (
        "`--disable-auto-complete-config`",
        lambda value: FlagTranslation("disable_auto_complete_config", value),
    ),
    "backend-config": (
        "`--default-max-batch-size` where it sets `default-max-batch-size`; other options are "
        "ignored",
        _backend_config,
    ),
    "metrics-config": (
        "`--metrics-config`; `summary_latencies` and `summary_quantiles` are ignored, the "
        "histograms tell the same",
        _metrics_config,
    ),
    "response-cache-byte-size": (
        "`--cache-config=local,size=N`",
        lambda value: FlagTranslation(
            "cache_config", f"local,size={value}", allowed="a number of bytes"
        ),
    ),
    "trace-file": ("`--trace-config=file=PATH`", _to_trace("file", "a path")),
    "trace-level": (
        "`--trace-config=level=LEVEL`",
        _to_trace("level", "OFF, TIMESTAMPS or TENSORS"),
    ),
    "trace-rate": (
        "`--trace-config=rate=N`",
        _to_trace("rate", "a whole number from 0 to 4294967295"),
    ),
    "trace-count": (
        "`--trace-config=count=N`",
        _to_trace("count", "a whole number from -1 to 2147483647"),
    ),
    "trace-log-frequency": (
        "`--trace-config=log-frequency=N`",
        _to_trace("log-frequency", "a whole number from 0 to 4294967295"),
    ),
    "model-namespacing": (
        "only `false`: model names are unique over all repositories",
        _only(_NO, "model names are unique over all repositories; rename one of them"),
    ),
    "allow-sagemaker": ("only `false`: there is no such front end", _only(_NO, _ENDPOINT)),
    "allow-vertex-ai": ("only `false`: there is no such front end", _only(_NO, _ENDPOINT)),
}
"""Flag → what it becomes, in words for the page, and the function that does it."""

_NO_THREADS = "one event loop serves the listener"
_NO_LIBRARIES = "backends are Python modules of this server, not libraries in a folder"
_NO_PINNED = "tensors stay in ordinary memory"
_NO_GPU_POOL = "the runtimes manage GPU memory themselves"
_NO_ENDPOINT = "there is no such front end"
_NO_KEEP_ALIVE = "the gRPC listener's connections have fixed rules"

IGNORED: Mapping[str, str] = {
    "http-thread-count": _NO_THREADS,
    "grpc-infer-allocation-pool-size": "requests are not pooled",
    "grpc-max-response-pool-size": "responses are not pooled",
    "grpc-infer-response-compression-level": "gRPC answers are sent as they are",
    "grpc-keepalive-time": _NO_KEEP_ALIVE,
    "grpc-keepalive-timeout": _NO_KEEP_ALIVE,
    "grpc-keepalive-permit-without-calls": _NO_KEEP_ALIVE,
    "grpc-http2-max-pings-without-data": _NO_KEEP_ALIVE,
    "grpc-http2-min-recv-ping-interval-without-data": _NO_KEEP_ALIVE,
    "grpc-http2-max-ping-strikes": _NO_KEEP_ALIVE,
    "grpc-max-connection-age": _NO_KEEP_ALIVE,
    "grpc-max-connection-age-grace": _NO_KEEP_ALIVE,
    "sagemaker-port": _NO_ENDPOINT,
    "sagemaker-safe-port-range": _NO_ENDPOINT,
    "sagemaker-thread-count": _NO_ENDPOINT,
    "vertex-ai-port": _NO_ENDPOINT,
    "vertex-ai-thread-count": _NO_ENDPOINT,
    "vertex-ai-default-model": _NO_ENDPOINT,
    "allow-gpu-metrics": "there are no GPU metrics yet",
    "metrics-interval-ms": "every scrape is rendered when it comes",
    "backend-directory": _NO_LIBRARIES,
    "repoagent-directory": "there are no repository agents",
    "cache-directory": "the cache is part of this server",
    "pinned-memory-pool-byte-size": _NO_PINNED,
    "cuda-memory-pool-byte-size": _NO_GPU_POOL,
    "cuda-virtual-address-size": _NO_GPU_POOL,
    "min-supported-compute-capability": "the runtimes decide which GPUs they can use",
    "buffer-manager-thread-count": "each instance stacks its own batches",
    "host-policy": "instances run where the system puts them; --cores bounds them all",
    "model-load-gpu-limit": "a model that does not fit fails to load with the runtime's reason",
    "enable-peer-access": "tensors do not travel between GPUs",
}
"""Flag → why it has no meaning here."""

OURS: Mapping[str, Setting] = {row.flag.removeprefix("--"): row for row in TABLE}
"""Our own settings by flag; those Triton does not have may be given too."""

BARE = frozenset(
    {"strict-model-config", "model-namespacing", "allow-sagemaker", "allow-vertex-ai"}
    | {"allow-gpu-metrics", "grpc-keepalive-permit-without-calls", "enable-peer-access"}
    | {flag for flag, row in OURS.items() if row.kind.toml == (bool,)}
)
"""Flags that may be given without a value, which then is true."""


def all_flags() -> frozenset[str]:
    """Every flag `tritonserver` takes, without its dashes."""
    return frozenset({flag for flags in GROUPS.values() for flag in flags} | OURS.keys())


def fate(flag: str) -> FlagSupport:
    """What becomes of a known flag."""
    if flag in TRANSLATED:
        return FlagSupport.TRANSLATED
    if flag in OURS:
        return FlagSupport.SETTING
    return FlagSupport.IGNORED


def translate(flag: str, value: str) -> FlagTranslation:
    """What `flag` with `value` means to our settings. Raises UnsupportedFlagValue."""
    match fate(flag):
        case FlagSupport.TRANSLATED:
            return TRANSLATED[flag][1](value)
        case FlagSupport.SETTING:
            return FlagTranslation(OURS[flag].name, value)
    return FlagTranslation(note=f"--{flag} has no effect: {IGNORED[flag]}")
