"""Choose a model's scheduler from its config, once; callers never ask which.

Source of the fields: Triton's `ModelDynamicBatching` and `ModelQueuePolicy`.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tritonclient.grpc import model_config_pb2 as pb

from backends.limits import NO_LIMIT, ExecutionLimit
from backends.seam import Instance
from repository.model import ModelConfig, ModelVersion
from schedulers.batching import BatchScheduler
from schedulers.cache import ResponseCache
from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import Counters
from schedulers.policy.cores import CoreTokens
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import BatchQueue, QueuePolicy
from schedulers.policy.resource_limits import ResourceLimiter
from schedulers.rate_limited import RateLimitedScheduler, RateLimitedSequenceBatcher
from schedulers.sequences.batcher import SequenceBatcher
from schedulers.sequences.rules import sequence_rules

if TYPE_CHECKING:  # what they import is an extra
    from schedulers.llm.gateway.language import Language
    from schedulers.llm.gateway.language_scheduler import LanguageScheduler


class SharedState(NamedTuple):
    """What the models of a server share beside its cores; None where there is no such thing.

    `cache`: for models whose config enables `response_cache`. `limiter`: where the instances are
    registered whose executions need resources.
    """

    cache: ResponseCache | None = None
    limiter: ResourceLimiter | None = None


NOTHING_SHARED = SharedState()


def build(
    config: ModelConfig,
    instances: Sequence[Instance],
    counters: Counters,
    tokens: CoreTokens,
    default_max_queue_size: int,
    shared: SharedState = NOTHING_SHARED,
    limit: ExecutionLimit = NO_LIMIT,
) -> BatchScheduler | CachedScheduler:
    """The scheduler a completed config asks for; call it on the running loop.

    `default_max_queue_size` bounds every queue whose config sets no bound. `shared`: with
    the schedulers of other models. `limit`: how long an execution on a thread of this process may
    take before it counts as hung.
    """
    cache, limiter = shared
    if config.HasField("sequence_batching"):
        sequences = sequence_rules(config, default_max_queue_size)
        keeps_state = bool(config.sequence_batching.state)
        if limiter is None:
            return SequenceBatcher(sequences, instances, counters, tokens, limit, keeps_state)
        return RateLimitedSequenceBatcher(
            sequences, instances, counters, tokens, limiter, limit, keeps_state
        )
    queue, rules = _queue(config.dynamic_batching, default_max_queue_size), _rules(config)
    scheduler: BatchScheduler
    if limiter is None:
        scheduler = BatchScheduler(queue, rules, instances, counters, tokens, limit)
    else:
        scheduler = RateLimitedScheduler(queue, rules, instances, counters, tokens, limiter, limit)
    if cache is None or not config.response_cache.enable:
        return scheduler
    return CachedScheduler(scheduler, cache, counters)


def build_language(
    version: ModelVersion, language: "Language", instances: Sequence[Instance], counters: Counters
) -> "LanguageScheduler":
    """The scheduler of a language model, over its engines; call it on the running loop."""
    from backends.llm.settings import read_settings
    from schedulers.llm.gateway.language_scheduler import LanguageScheduler

    return LanguageScheduler(read_settings(version), language, instances, counters)


def _rules(config: ModelConfig) -> MergeRules:
    batching = config.dynamic_batching
    dynamic = config.WhichOneof("scheduling_choice") == "dynamic_batching"
    return MergeRules(
        max_rows=config.max_batch_size if dynamic else 0,
        preferred=frozenset(batching.preferred_batch_size),
        delay_ns=batching.max_queue_delay_microseconds * 1000,
        preserve_order=batching.preserve_ordering,
        batched=config.max_batch_size > 0,
        hold_until=int(os.environ.get("TRITONSERVER_DELAY_SCHEDULER") or 0),
    )


def _queue(batching: pb.ModelDynamicBatching, bound: int) -> BatchQueue:
    default = (
        _policy(batching.default_queue_policy, bound)
        if batching.HasField("default_queue_policy")
        else QueuePolicy(max_size=bound)
    )
    return BatchQueue(
        default,
        {level: _policy(policy, bound) for level, policy in batching.priority_queue_policy.items()},
        count=max(1, batching.priority_levels),
        default_level=max(1, batching.default_priority_level),
    )


def _policy(policy: pb.ModelQueuePolicy, bound: int) -> QueuePolicy:
    return QueuePolicy(
        max_size=policy.max_queue_size or bound,
        timeout_ns=policy.default_timeout_microseconds * 1000,
        delay=policy.timeout_action == pb.ModelQueuePolicy.DELAY,
        allow_override=policy.allow_timeout_override,
    )
