"""Rules for how a model is scheduled: batching, priorities, ensembles."""

from typing import Any

from repository.config.ensemble_rules import ensemble_graph
from repository.config.finding_report import FindingReport
from repository.config.sequence_rules import sequence_rules
from repository.model import ModelConfig


def _batching(config: ModelConfig, report: FindingReport) -> None:
    if not config.HasField("dynamic_batching"):
        return
    policy = config.dynamic_batching
    size_known = report.batch_size_known(config)
    if size_known and config.max_batch_size == 0:
        rule = "needs max_batch_size > 0, got 0"
        report.add("dynamic_batching", "E120", f"dynamic_batching {rule}")
        size_known = False
    for index, size in enumerate(policy.preferred_batch_size):
        path = f"dynamic_batching.preferred_batch_size[{index}]"
        if size < 1:
            report.add(path, "E121", f"{path} must be ≥ 1, got {size}")
        elif size_known and size > config.max_batch_size:
            limit = f"must be ≤ max_batch_size {config.max_batch_size}"
            report.add(path, "E121", f"{path} {limit}, got {size}")
    _priorities(policy, report)
    if policy.preserve_ordering:
        _ordering(policy, report)


def _priorities(policy: Any, report: FindingReport) -> None:
    levels, default = policy.priority_levels, policy.default_priority_level
    if not levels:
        if policy.priority_queue_policy:
            path = "dynamic_batching.priority_queue_policy"
            report.add(path, "E122", f"{path} needs priority_levels ≥ 1")
        return
    allowed = f"must be from 1 to priority_levels {levels}"
    if not 1 <= default <= levels:
        path = "dynamic_batching.default_priority_level"
        report.add(path, "E122", f"{path} {allowed}, got {default}")
    for key in sorted(policy.priority_queue_policy):
        if not 1 <= key <= levels:
            path = "dynamic_batching.priority_queue_policy"
            where = report.positions.keyed(path, key)
            report.add(where, "E122", f"{path} key {allowed}, got {key}")


def _ordering(policy: Any, report: FindingReport) -> None:
    path = "dynamic_batching.preserve_ordering"
    if policy.priority_levels > 1:
        problem = f"excludes more than one priority level, got {policy.priority_levels}"
        report.add(path, "E123", f"{path} {problem}")
    queues = {"default_queue_policy": policy.default_queue_policy}
    for key in sorted(policy.priority_queue_policy):
        queues[f"priority_queue_policy {key}"] = policy.priority_queue_policy[key]
    for name, queue in queues.items():
        expires = queue.default_timeout_microseconds or queue.allow_timeout_override
        if queue.timeout_action == queue.DELAY and expires:
            accepted = "use REJECT or drop preserve_ordering"
            report.add(path, "E123", f"{path} excludes DELAY, which {name} has; {accepted}")


def _response_cache(config: ModelConfig, report: FindingReport) -> None:
    if not config.response_cache.enable:
        return
    path = "response_cache.enable"
    if config.model_transaction_policy.decoupled:
        report.add(path, "E125", f"{path} excludes model_transaction_policy.decoupled")
    if config.HasField("sequence_batching"):
        report.add(path, "E125", f"{path} excludes sequence_batching")


def _ensemble(config: ModelConfig, report: FindingReport) -> None:
    scheduled = config.HasField("ensemble_scheduling")
    if scheduled and config.platform != "ensemble":
        problem = f"platform must be 'ensemble' with ensemble_scheduling, got '{config.platform}'"
        report.add("platform", "E140", problem)
    if config.platform == "ensemble" and not scheduled:
        rule = f"ensemble scheduling must be set for ensemble '{config.name}'"
        report.add("platform", "E140", f"{rule}, whose platform is ensemble")
    if not scheduled:
        return
    excluded = {
        "backend": bool(config.backend),
        "instance_group": len(config.instance_group) > 0,
        "optimization": config.HasField("optimization"),
        "model_warmup": len(config.model_warmup) > 0,
        "dynamic_batching": config.HasField("dynamic_batching"),
        "response_cache": config.response_cache.enable,
    }
    for field, given in excluded.items():
        if given:
            report.add(field, "E140", f"{field} has no meaning for an ensemble; leave it out")


SCHEDULING_RULES = (_batching, sequence_rules, _response_cache, _ensemble, ensemble_graph)
