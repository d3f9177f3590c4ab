"""A series as the control API shows it: columns of numbers, one for each point."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from control.clock import Moment
from control.series.percentiles import PercentileCache, rounded
from control.series.points import (
    LanguagePoint,
    Latencies,
    SequencePoint,
    SeriesPoint,
)

Column = list[float | None]
"""One number a point; null where nothing can be said: no server ran, or nothing was answered."""


class LanguageSeriesView(msgspec.Struct, frozen=True):
    """Of a language model: tokens a second, the time to the first token and between two tokens in
    milliseconds, requests that run and wait, the share of KV blocks in use and of prompt tokens
    that came from the prefix cache (0 to 1)."""

    prompt_tokens_per_s: Column
    generated_tokens_per_s: Column
    first_token_ms_p50: Column
    first_token_ms_p95: Column
    between_tokens_ms_p50: Column
    between_tokens_ms_p95: Column
    running: Column
    waiting: Column
    kv_use: Column
    prefix_hit_share: Column


class SequenceSeriesView(msgspec.Struct, frozen=True):
    """Of a sequence model: sequences that live, those that wait for a slot, slots of all instances
    and how many are in use, the age of the oldest, the bytes of their states; sequences a second
    that started, expired because they were idle, and were lost with their instance."""

    live: Column
    backlog: Column
    slots: Column
    slots_in_use: Column
    oldest_s: Column
    state_bytes: Column
    started_per_s: Column
    expired_per_s: Column
    lost_per_s: Column


class SeriesView(msgspec.Struct, frozen=True):
    """One line of a chart for each column. `name`: "2" for a version, an arm, a model or a server,
    by what was asked for. `failed_per_s`: by reason. `error_rate`: failed requests among all, 0 to
    1, without those whose client had gone. `queue_ms` and `compute_ms` are means over successful
    requests, `batch_rows` over executions; `instances_busy`: how many executed, on average.
    `loop_lag_ms`: of a server, the longest delay of its event loop; 0 of others."""

    name: str
    requests_per_s: Column
    error_rate: Column
    failed_per_s: dict[str, Column]
    latency_ms_p50: Column
    latency_ms_p95: Column
    latency_ms_p99: Column
    queue_ms: Column
    compute_ms: Column
    batch_rows: Column
    instances_busy: Column
    instances: Column
    pending: Column
    memory_bytes: Column
    loop_lag_ms: Column
    language: LanguageSeriesView | None = None
    sequences: SequenceSeriesView | None = None


class SeriesPage(msgspec.Struct, frozen=True):
    """`at`: when each point begins; it spans `step_s`. `until`: where the last one ends."""

    since: Moment
    until: Moment
    step_s: int
    at: list[Moment]
    items: list[SeriesView]


class SeriesStorageView(msgspec.Struct, frozen=True):
    """`size_bytes` of at most `limit_bytes`, which is kept to once an hour; `oldest`: the first
    point that is kept, null before there is one."""

    size_bytes: int
    limit_bytes: int
    oldest: Moment | None


def view_of(
    name: str,
    points: Mapping[int, SeriesPoint],
    starts: Sequence[int],
    step_s: int,
    served: Collection[int],
) -> SeriesView:
    """The points of one series, by the moment in which they begin. `served`: when any server was
    there, so that no point means no request."""
    column = [points.get(at) for at in starts]
    reasons = sorted({reason for one in points.values() for reason in one.failed})
    p50, p95, p99 = _columns_of([() if one is None else one.latency for one in column])
    return SeriesView(
        name=name,
        requests_per_s=[
            (0.0 if at in served else None)
            if one is None
            else rounded((one.succeeded + one.failures) / step_s)
            for at, one in zip(starts, column, strict=True)
        ],
        error_rate=_each(column, lambda one: _share(one.errors, one.succeeded + one.failures)),
        failed_per_s={
            reason: _each(column, partial(_failed_per_s, reason, step_s)) for reason in reasons
        },
        latency_ms_p50=p50,
        latency_ms_p95=p95,
        latency_ms_p99=p99,
        queue_ms=_each(column, lambda one: _mean(one.queue_us / 1e3, one.succeeded)),
        compute_ms=_each(column, lambda one: _mean(one.compute_us / 1e3, one.succeeded)),
        batch_rows=_each(column, lambda one: _mean(one.rows, one.batches)),
        instances_busy=_each(column, lambda one: rounded(one.busy_us / 1e6 / step_s)),
        instances=_each(column, lambda one: one.instances),
        pending=_each(column, lambda one: one.pending),
        memory_bytes=_each(column, lambda one: one.memory_bytes),
        loop_lag_ms=_each(column, lambda one: rounded(one.loop_lag_us / 1e3)),
        language=_language([None if one is None else one.language for one in column], step_s),
        sequences=_sequences([None if one is None else one.sequences for one in column], step_s),
    )


def with_open_point(view: SeriesView, step_s: int, open_s: int) -> SeriesView:
    """The same, its last point being of the `open_s` seconds that have passed of it: its rates are
    over these."""
    factor = step_s / open_s
    language = view.language
    if language is not None:
        language = replace(
            language,
            prompt_tokens_per_s=_last_times(language.prompt_tokens_per_s, factor),
            generated_tokens_per_s=_last_times(language.generated_tokens_per_s, factor),
        )
    sequences = view.sequences
    if sequences is not None:
        sequences = replace(
            sequences,
            started_per_s=_last_times(sequences.started_per_s, factor),
            expired_per_s=_last_times(sequences.expired_per_s, factor),
            lost_per_s=_last_times(sequences.lost_per_s, factor),
        )
    return replace(
        view,
        requests_per_s=_last_times(view.requests_per_s, factor),
        failed_per_s={
            name: _last_times(column, factor) for name, column in view.failed_per_s.items()
        },
        instances_busy=_last_times(view.instances_busy, factor),
        language=language,
        sequences=sequences,
    )


def _last_times(column: Column, factor: float) -> Column:
    *before, last = column
    return [*before, None if last is None else rounded(last * factor)]


def _language(column: Sequence[LanguagePoint | None], step_s: int) -> LanguageSeriesView | None:
    if not any(column):
        return None
    first = _columns_of([() if one is None else one.first_token for one in column])
    between = _columns_of([() if one is None else one.between_tokens for one in column])
    return LanguageSeriesView(
        prompt_tokens_per_s=_each(column, lambda one: rounded(one.prompt_tokens / step_s)),
        generated_tokens_per_s=_each(column, lambda one: rounded(one.generated_tokens / step_s)),
        first_token_ms_p50=first[0],
        first_token_ms_p95=first[1],
        between_tokens_ms_p50=between[0],
        between_tokens_ms_p95=between[1],
        running=_each(column, lambda one: one.running),
        waiting=_each(column, lambda one: one.waiting),
        kv_use=_each(column, lambda one: rounded(one.kv_use)),
        prefix_hit_share=_each(
            column, lambda one: _share(one.prefix_hit_tokens, one.prompt_tokens)
        ),
    )


def _sequences(column: Sequence[SequencePoint | None], step_s: int) -> SequenceSeriesView | None:
    if not any(column):
        return None
    return SequenceSeriesView(
        live=_each(column, lambda one: one.live),
        backlog=_each(column, lambda one: one.backlog),
        slots=_each(column, lambda one: one.slots),
        slots_in_use=_each(column, lambda one: one.live - one.backlog),
        oldest_s=_each(column, lambda one: rounded(one.oldest_ms / 1e3)),
        state_bytes=_each(column, lambda one: one.state_bytes),
        started_per_s=_each(column, lambda one: rounded(one.started / step_s)),
        expired_per_s=_each(column, lambda one: rounded(one.expired / step_s)),
        lost_per_s=_each(column, lambda one: rounded(one.lost / step_s)),
    )


def _failed_per_s(reason: str, step_s: int, point: SeriesPoint) -> float | None:
    return rounded(point.failed.get(reason, 0) / step_s)


_Point = TypeVar("_Point")


def _each(column: Sequence[_Point | None], figure: Callable[[_Point], float | None]) -> Column:
    return [None if one is None else figure(one) for one in column]


_NOTHING: tuple[None, ...] = (None, None, None)


_percentiles = PercentileCache()


def _columns_of(latencies: Sequence[Latencies]) -> Sequence[Column]:
    """p50, p95 and p99 of each, null where nothing was counted."""
    rows = [_percentiles.of(one) if one else _NOTHING for one in latencies]
    return [[row[number] for row in rows] for number in range(3)]


def _share(part: int, whole: int) -> float | None:
    return rounded(part / whole) if whole else None


def _mean(total: float, count: int) -> float | None:
    return rounded(total / count) if count else None
