"""Bounds on the numbers of a config that make the server allocate, wait or start threads.

Triton's fields are 32 or 64 bits wide and have no bounds of their own. Each bound here is well
above what any model served so far has needed, and far below what would take a machine down. Pure.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from repository.config.finding_report import FindingReport
from repository.model import ModelConfig

MOST_ROWS = 1_000_000
MOST_PRIORITY_LEVELS = 1024
MOST_INSTANCES = 1024
MOST_PREFERRED_SIZES = 1024
MOST_DIMS = 32
MOST_ELEMENTS = 1 << 40
MOST_WARMUP_SAMPLES = 1024
MOST_WARMUP_RUNS = 100_000
MOST_DELAY_US = 86_400_000_000
MOST_TIMEOUT_US = 31 * MOST_DELAY_US
_MOST_DIGITS = 18
_OF_PARAMETERS = {
    "intra_op_thread_count": (1024, "threads of one operator"),
    "inter_op_thread_count": (1024, "operators at a time"),
    "execute_delay_ms": (86_400_000, "milliseconds, one day"),
}
"""Parameters of backends that start threads or wait; a language model's are in its settings."""
MOST_BUCKETS, MOST_BUCKET_MS = 256, 86_400_000


def _numbers(config: ModelConfig, report: FindingReport) -> None:
    batching = config.dynamic_batching
    queues = {"default_queue_policy": batching.default_queue_policy}
    for key in sorted(batching.priority_queue_policy):
        queues[f"priority_queue_policy[{key}]"] = batching.priority_queue_policy[key]
    found = [
        ("max_batch_size", config.max_batch_size, MOST_ROWS, "rows"),
        ("dynamic_batching.priority_levels", batching.priority_levels, MOST_PRIORITY_LEVELS,
         "levels, each a queue of its own"),
        ("dynamic_batching.max_queue_delay_microseconds", batching.max_queue_delay_microseconds,
         MOST_DELAY_US, "microseconds, one day"),
    ]  # fmt: skip
    for name, queue in queues.items():
        path = f"dynamic_batching.{name}.default_timeout_microseconds"
        wait_us = queue.default_timeout_microseconds
        found.append((path, wait_us, MOST_TIMEOUT_US, "microseconds, 31 days"))
    for index, sample in enumerate(config.model_warmup):
        path = f"model_warmup[{index}].count"
        found.append((path, sample.count, MOST_WARMUP_RUNS, "executions"))
    for path, got, most, what in found:
        _at_most(path, got, most, what, report)


def _lengths(config: ModelConfig, report: FindingReport) -> None:
    preferred = config.dynamic_batching.preferred_batch_size
    path = "dynamic_batching.preferred_batch_size"
    _at_most(path, len(preferred), MOST_PREFERRED_SIZES, "sizes", report)
    _at_most("model_warmup", len(config.model_warmup), MOST_WARMUP_SAMPLES, "samples", report)


def _instances(config: ModelConfig, report: FindingReport) -> None:
    total = 0
    for index, group in enumerate(config.instance_group):
        total += max(1, group.count) * max(1, len(group.gpus))
        if total > MOST_INSTANCES:
            path = f"instance_group[{index}].count"
            what = f"instances with those of the groups before it: {MOST_INSTANCES} in all"
            problem = f"{path} {group.count} makes {total} {what} are allowed"
            report.add(path, "E130", problem)
            return


def _tensors(config: ModelConfig, report: FindingReport) -> None:
    for path, dims in _shapes(config):
        _at_most(path, len(dims), MOST_DIMS, "dimensions", report)
        elements = 1
        for dim in dims:
            elements *= max(1, dim)
            if elements > MOST_ELEMENTS:
                shown = list(dims[:MOST_DIMS])
                problem = f"{path} {shown} holds more than {MOST_ELEMENTS} elements"
                report.add(path, "E114", problem)
                break


def _shapes(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    for kind in ("input", "output"):
        for index, tensor in enumerate(getattr(config, kind)):
            yield f"{kind}[{index}].dims", tensor.dims
            yield f"{kind}[{index}].reshape.shape", tensor.reshape.shape
    for index, sample in enumerate(config.model_warmup):
        for name, given in sample.inputs.items():
            yield f"model_warmup[{index}].inputs[{name}].dims", given.dims


def _parameters(config: ModelConfig, report: FindingReport) -> None:
    for name, (most, what) in _OF_PARAMETERS.items():
        if name not in config.parameters:
            continue
        text = config.parameters[name].string_value
        if text.isdecimal() and (len(text) > _MOST_DIGITS or int(text) > most):
            where = report.positions.keyed("parameters", name)
            problem = f"parameter {name} must be at most {most} ({what}), got '{text:.80}'"
            report.add(where, "E103", problem)


def _buckets(config: ModelConfig, report: FindingReport) -> None:
    for index, control in enumerate(config.model_metrics.metric_control):
        path = f"model_metrics.metric_control[{index}].histogram_options.buckets"
        bounds = list(control.histogram_options.buckets)
        _at_most(path, len(bounds), MOST_BUCKETS, "buckets", report)
        if not all(0 < bound <= MOST_BUCKET_MS for bound in bounds):
            allowed = f"must each be above 0 and at most {MOST_BUCKET_MS} ms"
            report.add(path, "E103", f"{path} {allowed}, got {bounds[:MOST_BUCKETS]}")
        elif any(before >= after for before, after in pairwise(bounds)):
            report.add(path, "E103", f"{path} must ascend, got {bounds[:MOST_BUCKETS]}")


def _at_most(path: str, got: int, most: int, what: str, report: FindingReport) -> None:
    if got > most:
        report.add(path, "E103", f"{path} must be at most {most} ({what}), got {got}")


BOUND_RULES = (_numbers, _lengths, _instances, _tensors, _parameters, _buckets)
