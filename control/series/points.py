"""What was counted of one subject in one stretch of time, and how points merge. Pure."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from control.statistics.histogram import BUCKETS, Histogram

WINDOW_S = 10

CANCELLED = "CANCELED"
"""The reason of requests whose client had gone, as in Triton's metrics."""

"""What one window of a gateway spans; it begins at a multiple of this."""

SubjectKind = Literal["version", "arm", "mirror", "server"]


class SeriesSubject(Struct, frozen=True, array_like=True, gc=False):
    """What a series is of. `name`: the model's, the route's, or "" of a server; `version` 0 but of
    a version; `arm` "" but of an arm. A mirror is what an arm made of copies of requests."""

    kind: SubjectKind
    name: str = ""
    version: int = 0
    arm: str = ""

    @property
    def key(self) -> str:
        """As the rows of chunks name it; no part has a slash in it."""
        return f"{self.kind}/{self.name}/{self.version}/{self.arm}"


def subject_of(key: str) -> SeriesSubject:
    """The subject with this `key`."""
    kind, name, version, arm = key.split("/")
    return SeriesSubject(kind, name, int(version), arm)  # type: ignore[arg-type]


Latencies = tuple[int, ...]
"""A histogram of seconds: for each bucket in which something is, in order, how many buckets lie
between it and the one before (or the first of all), and its count."""


class LanguagePoint(Struct, frozen=True, array_like=True, gc=False):
    """Of a language model. Tokens are counts; `first_token` and `between_tokens` are seconds;
    `running` and `waiting` requests and the share of KV blocks `kv_use` (0 to 1) are as of the end,
    the largest where stretches were merged."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_hit_tokens: int = 0
    first_token: Latencies = ()
    between_tokens: Latencies = ()
    running: int = 0
    waiting: int = 0
    kv_use: float = 0.0


class SequencePoint(Struct, frozen=True, array_like=True, gc=False):
    """Of a sequence model. As of the end, the largest where stretches were merged: sequences that
    are `live`, those of them in the `backlog`, `slots` of all instances, the age of the oldest that
    lives, `oldest_ms`, and `state_bytes`. Sequences that were `started`, that `expired` because
    they were idle, and that were `lost` with their instance are counts."""

    live: int = 0
    backlog: int = 0
    slots: int = 0
    oldest_ms: int = 0
    state_bytes: int = 0
    started: int = 0
    expired: int = 0
    lost: int = 0


class StepPoint(Struct, frozen=True, array_like=True, gc=False):
    """Of a step of an ensemble: calls that were `answered`, that `failed`, and that still ran when
    their request ended, as `cancelled`. Seconds of the answered ones are in `latency`, of which
    `queue_us` and `compute_us` are sums. `rows`: of those answered and failed. `skipped`: how often
    the step was left out, for `skipped_rows`."""

    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    latency: Latencies = ()
    queue_us: int = 0
    compute_us: int = 0
    rows: int = 0
    skipped: int = 0
    skipped_rows: int = 0


class SeriesPoint(Struct, frozen=True, array_like=True, gc=False):
    """What was counted in a stretch of time.

    `succeeded` requests, whose latencies are in `latency` and of whose time `queue_us` and
    `compute_us`, microseconds, are sums; `failed` requests by reason. `batches` executed with
    `rows` rows, which took `busy_us` of instances. As of the end, the largest where stretches
    were merged: requests `pending`, `instances` that are ready, `memory_bytes` of their workers
    (of a server: also its own). `loop_lag_us`: of a server, the longest delay of its event loop.
    `client_errors`: of the failed, those that the client is to blame for. `steps`: of an ensemble,
    by number and model ("2:digits"), where anything was counted.
    """

    succeeded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    latency: Latencies = ()
    queue_us: int = 0
    compute_us: int = 0
    rows: int = 0
    batches: int = 0
    busy_us: int = 0
    pending: int = 0
    instances: int = 0
    memory_bytes: int = 0
    language: LanguagePoint | None = None
    loop_lag_us: int = 0
    client_errors: int = 0
    sequences: SequencePoint | None = None
    steps: dict[str, StepPoint] | None = None

    @property
    def failures(self) -> int:
        return sum(self.failed.values())

    @property
    def errors(self) -> int:
        """Failures without those whose client had gone."""
        return self.failures - self.failed.get(CANCELLED, 0)


_Gauge = Callable[[Sequence[Any]], Any]
"""What several values of a gauge are together."""


def one_after_another(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """The point of stretches that follow one another."""
    return _merged(points, max)


def side_by_side(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """The point of one stretch on several servers, or of several subjects."""
    return _merged(points, sum)


def pack_latencies(histogram: Histogram) -> Latencies:
    return _pack((bucket, count) for bucket, count in enumerate(histogram.counts) if count)


def histogram_of(latencies: Iterable[Latencies]) -> Histogram:
    """All of them together. Raises ValueError for what `pack_latencies` cannot have made."""
    merged = Histogram()
    counts = merged.counts
    for packed in latencies:
        for bucket, count in buckets_of(packed):
            counts[bucket] += count
    merged.n = sum(counts)
    return merged


COARSE = 4
"""Buckets that become one in a chunk, in whose middle all then lies: quantiles are 4.5 % off at
most."""


def coarser(point: SeriesPoint) -> SeriesPoint:
    """The same, with fewer buckets."""
    language = point.language
    if language is not None:
        language = replace(
            language,
            first_token=_coarse(language.first_token),
            between_tokens=_coarse(language.between_tokens),
        )
    steps = point.steps
    if steps is not None:
        steps = {name: replace(one, latency=_coarse(one.latency)) for name, one in steps.items()}
    return replace(point, latency=_coarse(point.latency), language=language, steps=steps)


def _coarse(latencies: Latencies) -> Latencies:
    if not latencies:
        return ()
    coarse: Tally[int] = Tally()
    for bucket, count in buckets_of(latencies):
        coarse[min(bucket - bucket % COARSE + COARSE // 2, BUCKETS - 1)] += count
    return _pack(sorted(coarse.items()))


def _merged(points: Sequence[SeriesPoint], gauge: _Gauge) -> SeriesPoint:
    """One pass over them: a chart of an hour merges a hundred thousand."""
    if len(points) == 1:
        return points[0]
    if not points:
        return SeriesPoint()
    succeeded = queue_us = compute_us = rows = batches = busy_us = client_errors = loop_lag_us = 0
    failed: dict[str, int] = {}
    for one in points:
        succeeded += one.succeeded
        queue_us += one.queue_us
        compute_us += one.compute_us
        rows += one.rows
        batches += one.batches
        busy_us += one.busy_us
        client_errors += one.client_errors
        loop_lag_us = max(loop_lag_us, one.loop_lag_us)
        for reason, count in one.failed.items():
            failed[reason] = failed.get(reason, 0) + count
    languages = [one.language for one in points if one.language is not None]
    sequences = [one.sequences for one in points if one.sequences is not None]
    return SeriesPoint(
        succeeded,
        dict(sorted(failed.items())) if failed else failed,
        _packed([one.latency for one in points]),
        queue_us,
        compute_us,
        rows,
        batches,
        busy_us,
        gauge([one.pending for one in points]),
        gauge([one.instances for one in points]),
        gauge([one.memory_bytes for one in points]),
        _merged_language(languages, gauge) if languages else None,
        loop_lag_us,
        client_errors,
        _merged_sequences(sequences, gauge) if sequences else None,
        _merged_steps([one.steps for one in points if one.steps]),
    )


def _merged_steps(points: Sequence[dict[str, StepPoint]]) -> dict[str, StepPoint] | None:
    """Points in which the same model has other steps are of before a reload, or of another."""
    found: dict[str, list[StepPoint]] = {}
    for one in points:
        for name, step in one.items():
            found.setdefault(name, []).append(step)
    return {name: _merged_step(steps) for name, steps in found.items()} or None


def _merged_step(points: Sequence[StepPoint]) -> StepPoint:
    return StepPoint(
        sum(one.answered for one in points),
        sum(one.failed for one in points),
        sum(one.cancelled for one in points),
        _packed([one.latency for one in points]),
        sum(one.queue_us for one in points),
        sum(one.compute_us for one in points),
        sum(one.rows for one in points),
        sum(one.skipped for one in points),
        sum(one.skipped_rows for one in points),
    )


def _merged_sequences(
    points: Sequence[SequencePoint], gauge: Callable[[Sequence[Any]], Any]
) -> SequencePoint:
    return SequencePoint(
        gauge([one.live for one in points]),
        gauge([one.backlog for one in points]),
        gauge([one.slots for one in points]),
        max(one.oldest_ms for one in points),
        gauge([one.state_bytes for one in points]),
        sum(one.started for one in points),
        sum(one.expired for one in points),
        sum(one.lost for one in points),
    )


def _merged_language(points: Sequence[LanguagePoint], gauge: _Gauge) -> LanguagePoint:
    return LanguagePoint(
        sum(one.prompt_tokens for one in points),
        sum(one.generated_tokens for one in points),
        sum(one.prefix_hit_tokens for one in points),
        _packed([one.first_token for one in points]),
        _packed([one.between_tokens for one in points]),
        gauge([one.running for one in points]),
        gauge([one.waiting for one in points]),
        max(one.kv_use for one in points),
    )


def _packed(latencies: Sequence[Latencies]) -> Latencies:
    """The same as a histogram of all, packed; of the buckets that are used alone, some ten of 852.
    Raises ValueError."""
    used = [one for one in latencies if one]
    if len(used) < 2:
        return used[0] if used else ()
    counts: dict[int, int] = {}
    for one in used:
        for bucket, count in buckets_of(one):
            counts[bucket] = counts.get(bucket, 0) + count
    return _pack(sorted(counts.items()))


def buckets_of(latencies: Latencies) -> list[tuple[int, int]]:
    """Each bucket in which something is, in order, and its count. Raises ValueError for what
    `pack_latencies` cannot have made."""
    bucket = -1
    found = []
    for skipped, count in zip(latencies[::2], latencies[1::2], strict=True):
        bucket += skipped + 1
        if skipped < 0 or count < 0 or bucket >= BUCKETS:
            raise ValueError(f"not a histogram of {BUCKETS} buckets: {latencies!s:.80}")
        found.append((bucket, count))
    return found


def _pack(buckets: Iterable[tuple[int, int]]) -> Latencies:
    packed: list[int] = []
    following = 0
    for bucket, count in buckets:
        packed += (bucket - following, count)
        following = bucket + 1
    return tuple(packed)


class SubjectPoint(Struct, frozen=True, array_like=True, gc=False):
    """A row of a window."""

    subject: SeriesSubject
    point: SeriesPoint


class SeriesWindow(Struct, frozen=True, tag="series"):
    """All that a gateway counted from `at`, in seconds since the epoch, a multiple of `WINDOW_S`,
    until `WINDOW_S` later. `boot` is new with each start of it, which may split a window in two. A
    subject of which nothing was counted is left out, and so is one that is as it was."""

    server: str
    boot: str
    at: int
    rows: tuple[SubjectPoint, ...]


class SeriesStored(Struct, frozen=True, tag="series_stored"):
    """The answer to the window of this `at` and `boot`: it is in the database, and need not be sent
    again. `boot` is "" from an older control process."""

    at: int
    boot: str = ""
