"""Plain integers one loaded version counts with, in the units of Triton's statistics.

Written by the scheduler on the loop's thread only; rendered by `server.metrics.exposition` and
`server.statistics` on request. Durations are nanoseconds.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.errors import BackendError, ModelError
from repository.model import ModelConfig
from schedulers.errors import BadSequence, Cancelled, QueueFull, SchedulingError
from schedulers.latency_samples import LatencySamples
from schedulers.policy.queue import Ticket

BUCKETS_US: tuple[int, ...] = (
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
)  # fmt: skip
_BOUNDS_NS = tuple(bound * 1000 for bound in BUCKETS_US)
FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

CLIENT_CODES = frozenset(["INVALID_ARG", "NOT_FOUND", "UNSUPPORTED", "ALREADY_EXISTS"])
"""Of a model's own errors, those that say that the client is wrong."""


@dataclass(slots=True)
class BucketCounts:
    """Counts per bucket of `bounds_ns` (the last count is everything above), and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_US) + 1))
    sum_ns: int = 0
    bounds_ns: tuple[int, ...] = _BOUNDS_NS

    def add(self, duration_ns: int, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds_ns, duration_ns)] += times
        self.sum_ns += duration_ns * times


@dataclass(slots=True)
class TwofoldHistogram(BucketCounts):
    """One that counts everything in `second` as well, whose buckets a model's config chose.

    So only models that choose buckets pay for counting twice.
    """

    second: BucketCounts = field(default_factory=BucketCounts)

    def add(self, duration_ns: int, times: int = 1) -> None:
        BucketCounts.add(self, duration_ns, times)
        self.second.add(duration_ns, times)


def histogram_of(bounds_ms: Sequence[float]) -> TwofoldHistogram:
    """A histogram that also counts in buckets with these upper bounds, which ascend."""
    bounds_ns = tuple(round(bound * 1_000_000) for bound in bounds_ms)
    return TwofoldHistogram(second=BucketCounts([0] * (len(bounds_ns) + 1), 0, bounds_ns))


@dataclass(slots=True)
class BatchStatistics:
    """Executions of one batch size (rows) and the time they took."""

    count: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0


@dataclass(slots=True)
class ResponseStatistics:
    """The k-th responses of a decoupled model's requests; names and meanings are Triton's.

    `infer_ns`: from the response before (the first: from the start of execution) until the model
    sent it, `output_ns` from there to the reader's side. `success` and `fail` last both, `empty`
    (an end without a response) and `cancel` (the reader had gone) the first.
    """

    infer: int = 0
    infer_ns: int = 0
    output: int = 0
    output_ns: int = 0
    success: int = 0
    success_ns: int = 0
    fail: int = 0
    fail_ns: int = 0
    empty: int = 0
    empty_ns: int = 0
    cancel: int = 0
    cancel_ns: int = 0


@dataclass(slots=True)
class TokenCounters:
    """What a language model counts besides: tokens, and how soon they came.

    `first_token`: from a request's arrival to its first token. `between_tokens`: from one token of
    an answer to the next. `queue`: from arrival until the prompt was first computed. `replayed`:
    requests asked again of a restarted engine. The gauges are of all engines together; what a dead
    engine had counted stays counted.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    replayed: int = 0
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    blocks_in_use: int = 0
    blocks_cached: int = 0
    blocks_empty: int = 0
    first_token: BucketCounts = field(default_factory=BucketCounts)
    between_tokens: BucketCounts = field(default_factory=BucketCounts)
    queue: BucketCounts = field(default_factory=BucketCounts)
    first_token_samples: LatencySamples = field(default_factory=LatencySamples)
    between_tokens_samples: LatencySamples = field(default_factory=LatencySamples)


@dataclass(slots=True)
class SequenceCounters:
    """What a sequence model counts besides. The gauges: sequences that are `live`, those of them
    in the `backlog`, and the `slots` of all instances. `expired` were idle for too long; `lost`
    went with their instance; `conflicts` started with an id that another still had. `oldest_ns`:
    when the oldest of those that live began, 0 without any; `state_bytes`: that instances keep for
    them. Both are looked up when somebody asks.
    """

    live: int = 0
    backlog: int = 0
    slots: int = 0
    started: int = 0
    expired: int = 0
    lost: int = 0
    conflicts: int = 0
    oldest_ns: Callable[[], int] = lambda: 0
    state_bytes: Callable[[], int] = lambda: 0

    @property
    def in_slots(self) -> int:
        """Slots in use."""
        return self.live - self.backlog

    @property
    def oldest_s(self) -> float:
        """Seconds since the oldest sequence that lives began; 0 where none does."""
        began_ns = self.oldest_ns()
        return max(0.0, (time.monotonic_ns() - began_ns) / 1e9) if began_ns else 0.0


@dataclass(slots=True)
class StepCounters:
    """What an ensemble counts of one of its steps, the `number`th, which calls `model`.

    Calls that were `answered`, that `failed`, and that still ran when their request ended, as
    `cancelled`. `rows`: of those answered and failed; a mapped step's elements are a call each.
    `skipped`: how often it was left out, for `skipped_rows`, because of a condition, its own or of
    a step that it needs. `queue_ns` and `total_ns` are of the answered ones, as is `samples`.
    """

    number: int
    model: str
    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    rows: int = 0
    skipped: int = 0
    skipped_rows: int = 0
    queue_ns: int = 0
    total_ns: int = 0
    samples: LatencySamples = field(default_factory=LatencySamples)

    def count(
        self, rows: int, queue_ns: int, total_ns: int, *, failed: bool, calls: int = 1
    ) -> None:
        """Calls that have ended together, after as long; `rows` are those of all of them."""
        self.rows += rows
        if failed:
            self.failed += calls
            return
        self.answered += calls
        self.queue_ns += queue_ns * calls
        self.total_ns += total_ns * calls
        self.samples.add(total_ns, calls)

    def skip(self, rows: int) -> None:
        self.skipped += 1
        self.skipped_rows += rows


@dataclass(slots=True)
class Counters:
    """What happened to one loaded version since it was loaded.

    `success`/`failure`: requests, `request_ns` from arrival to answer. `inferences`: rows
    executed; `executions`: batches executed. A batched execution credits its full compute time to
    every request, as Triton's does. `pending`: requests queued and not yet executing.
    `client_errors`: those failures for which the client is to blame: the model said so, or the
    request was none of a sequence.
    `cache_hits` are successes that were not executed; `cache_hit_ns` is spent on looking them up,
    `cache_miss_ns` on looking up and keeping. `responses`: of decoupled models, by position.
    `tokens`: of language models; `sequences`: of sequence models; `steps`: of ensembles. `samples`:
    durations of successes since they were last taken for the time series.
    """

    success: int = 0
    success_ns: int = 0
    failure: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURE_REASONS, 0))
    failure_ns: int = 0
    client_errors: int = 0
    inferences: int = 0
    executions: int = 0
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    pending: int = 0
    last_inference_ms: int = 0
    request_histogram: BucketCounts = field(default_factory=BucketCounts)
    queue_histogram: BucketCounts = field(default_factory=BucketCounts)
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    responses: dict[int, ResponseStatistics] = field(default_factory=dict)
    cache_hits: int = 0
    cache_hit_ns: int = 0
    cache_misses: int = 0
    cache_miss_ns: int = 0
    tokens: TokenCounters | None = None
    sequences: SequenceCounters | None = None
    steps: Sequence[StepCounters] = ()
    samples: LatencySamples = field(default_factory=LatencySamples)


def count_success(ticket: Ticket, counters: Counters, started_ns: int, now_ns: int) -> None:
    """Count one request that was answered."""
    arrived_ns = ticket.request.arrived_ns
    queue_ns = started_ns - arrived_ns
    total_ns = now_ns - arrived_ns
    counters.success += 1
    counters.success_ns += total_ns
    counters.queue_ns += queue_ns
    counters.request_histogram.add(total_ns)
    counters.samples.add(total_ns)
    counters.queue_histogram.add(queue_ns)


def count_successes(
    times: int, arrived_ns: int, counters: Counters, started_ns: int, now_ns: int
) -> None:
    """Count requests that arrived, were executed and answered together, as `count_success`."""
    queue_ns = started_ns - arrived_ns
    total_ns = now_ns - arrived_ns
    counters.success += times
    counters.success_ns += total_ns * times
    counters.queue_ns += queue_ns * times
    counters.request_histogram.add(total_ns, times)
    counters.samples.add(total_ns, times)
    counters.queue_histogram.add(queue_ns, times)


def count_failure(counters: Counters, error: Exception, duration_ns: int, times: int = 1) -> None:
    """Count failed requests under Triton's reasons; `times` that took as long each."""
    counters.failure[_reason(error)] += times
    counters.failure_ns += duration_ns * times
    if isinstance(error, BadSequence) or (
        isinstance(error, ModelError) and error.code in CLIENT_CODES
    ):
        counters.client_errors += times


def _reason(error: Exception) -> str:
    if isinstance(error, Cancelled):
        return "CANCELED"
    if isinstance(error, QueueFull):
        return "REJECTED"
    if isinstance(error, BackendError):
        return "BACKEND"
    if isinstance(error, BadSequence):
        return "OTHER"
    return "REJECTED" if isinstance(error, SchedulingError) else "OTHER"


FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"


def counters_of(config: ModelConfig) -> Counters:
    """Counters for a version of this config; its `model_metrics` may choose the buckets of Triton's
    histogram. As in Triton, other families are left alone."""
    counters = Counters()
    for control in config.model_metrics.metric_control:
        buckets = control.histogram_options.buckets
        if control.metric_identifier.family == FIRST_RESPONSE and buckets:
            counters.request_histogram = histogram_of(buckets)
    return counters
