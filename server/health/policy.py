"""Whether a version answers as it should: recent windows of what was counted, held against bounds.
Pure.

A finding begins at its bound and ends well below it, so that what hovers there does not flap.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from backends.process.health.crash_history import APART_SECS, CrashHistory
from control.health import CRASH_LOOP, ERRORS, QUEUE_FULL, QUEUE_TIME, SLOW
from control.series.points import WINDOW_S, Latencies
from server.health.latencies import counts_of, quantile_of

LOOK_S = 60
"""The stretch that is judged at least; longer where there are too few requests in it."""

KEEP_S = 900
"""How far back it may reach."""

HOLD_S = 3600
"""How long a finding stays while too few requests come to tell whether it has passed."""

LEAST_BAD = 5
"""Failures, or refusals, with which a finding begins."""

SLOW_LOOK_S, SLOW_REQUESTS, SLOWER_S = 300, 100, 0.005
"""Latency is judged over so long, with at least so many requests, and counts as slow when it is at
least so much longer than usual, whatever the factor says."""

SLOW_EVERY = 6
"""Of so many windows it is judged in one: the histograms of five minutes take 0.3 ms to add up."""

QUEUE_SHARE, QUEUE_SHARE_END = 3.0, 2.0
"""Waiting takes so many times as long as computing where a finding begins, and where it ends."""

BATCH_DELAYS = 2.0
"""A queue may take so many times the delay that a config allows batches to form."""

END_SHARE = 0.5
"""Of a bound, below which a finding ends."""

REWORD_S = 60.0
"""How often the sentence of a finding that lasts is brought up to date."""


class HealthBounds(NamedTuple):
    """From where on a version is not well; the settings `--health-…` say what each is. A factor or
    a number of crashes of 0 is no bound."""

    error_rate: float = 0.1
    least_requests: int = 10
    slow_factor: float = 2.0
    queue_secs: float = 0.1
    crashes: int = 3


class AnswerWindow(NamedTuple):
    """What a version answered in the window that began `at`, seconds since the epoch. `failed` is
    neither what the client got wrong or cancelled nor what was `refused` by a full queue or waited
    beyond its deadline. Times are sums over those that succeeded."""

    at: int
    succeeded: int
    failed: int = 0
    refused: int = 0
    queue_us: int = 0
    compute_us: int = 0
    latency: Latencies = ()

    @property
    def requests(self) -> int:
        return self.succeeded + self.failed + self.refused


class VersionFacts(NamedTuple):
    """Beside its windows. `usual_s`: the p95 of its last day, 0 while that is unknown;
    `batch_delay_s`: how long its config lets a request wait for others."""

    usual_s: float = 0.0
    crashes: CrashHistory = CrashHistory()
    batch_delay_s: float = 0.0


class HealthFinding(NamedTuple):
    """Something is wrong since `since`, was seen last at `seen`; `worded`: when `reason` was put
    into words. All in seconds since the epoch."""

    since: float
    reason: str
    seen: float
    worded: float


Findings = Mapping[str, HealthFinding]
"""By reason code."""


class _Judged(NamedTuple):
    """What a check looks at."""

    windows: Sequence[AnswerWindow]
    facts: VersionFacts
    bounds: HealthBounds
    now: float
    begun: bool
    """Whether the finding is there already, and is to end below its bound."""

    @property
    def ends(self) -> float:
        return END_SHARE if self.begun else 1.0


class _Undecided(Exception):
    """Too few requests to tell, or not now: what was found stays."""


def judge(
    windows: Sequence[AnswerWindow],
    facts: VersionFacts,
    before: Findings,
    bounds: HealthBounds,
    now: float,
) -> dict[str, HealthFinding]:
    """What is wrong with a version, the worst first. `windows`: those with requests, the oldest
    first; `before`: what this returned last."""
    found = {}
    for code, check in _CHECKS.items():
        known = before.get(code)
        try:
            new = check(_Judged(windows, facts, bounds, now, known is not None))
        except _Undecided:
            new = known if known is not None and now - known.seen <= HOLD_S else None
        if new is not None and known is not None:
            new = new._replace(since=known.since)
            if now - known.worded < REWORD_S:
                new = new._replace(reason=known.reason, worded=known.worded)
        if new is not None:
            found[code] = new
    return found


def _crash_loop(seen: _Judged) -> HealthFinding | None:
    crashes, bound = seen.facts.crashes, seen.bounds.crashes
    if not bound or crashes.deaths < bound or seen.now - crashes.last > APART_SECS:
        return None
    reason = (
        f"{crashes.deaths} crashes of its workers since {_time(crashes.since)}, "
        f"the last at {_time(crashes.last)}: it {crashes.ending}"
    )
    return HealthFinding(crashes.since, reason, crashes.last, seen.now)


def _errors(seen: _Judged) -> HealthFinding | None:
    return _share(seen, lambda one: one.failed, "failed")


def _queue_full(seen: _Judged) -> HealthFinding | None:
    return _share(seen, lambda one: one.refused, "were refused by its queue or waited too long")


def _share(
    seen: _Judged, bad_of: Callable[[AnswerWindow], int], happened: str
) -> HealthFinding | None:
    """Raises _Undecided."""
    bound = seen.bounds.error_rate
    if not bound:
        return None
    recent = _recent(seen, seen.bounds.least_requests)
    requests, bad = sum(one.requests for one in recent), sum(map(bad_of, recent))
    if bad < (1 if seen.begun else LEAST_BAD) or bad / requests < bound * seen.ends:
        return None
    with_bad = [one.at for one in recent if bad_of(one)]
    first, until = recent[0].at, recent[-1].at + WINDOW_S
    reason = (
        f"{bad:,} of {requests:,} requests {happened} from {_time(first)} to {_time(until)}, "
        f"{_percent(bad / requests)}; the bound is {_percent(bound)}"
    )
    return HealthFinding(with_bad[0], reason, with_bad[-1] + WINDOW_S, seen.now)


def _slow(seen: _Judged) -> HealthFinding | None:
    """Raises _Undecided."""
    usual_s, factor = seen.facts.usual_s, seen.bounds.slow_factor
    if not factor:
        return None
    if int(seen.now) // WINDOW_S % SLOW_EVERY:
        raise _Undecided
    since = seen.now - SLOW_LOOK_S - WINDOW_S
    recent = [*takewhile(lambda one: one.at >= since, reversed(seen.windows))][::-1]
    succeeded = sum(one.succeeded for one in recent)
    if succeeded < SLOW_REQUESTS or not usual_s:
        raise _Undecided
    p95_s = quantile_of(counts_of(one.latency for one in recent), 0.95)
    if p95_s < usual_s * (1 + (factor - 1) * seen.ends) or p95_s - usual_s < SLOWER_S * seen.ends:
        return None
    until = recent[-1].at + WINDOW_S
    reason = (
        f"p95 {_duration(p95_s)} over {succeeded:,} requests from {_time(recent[0].at)} to "
        f"{_time(until)}, {p95_s / usual_s:.1f} times the {_duration(usual_s)} of its last day"
    )
    return HealthFinding(recent[0].at, reason, until, seen.now)


def _queue_time(seen: _Judged) -> HealthFinding | None:
    """Raises _Undecided."""
    bound_s = seen.bounds.queue_secs
    if not bound_s:
        return None
    recent = _recent(seen, seen.bounds.least_requests)
    succeeded = sum(one.succeeded for one in recent)
    if succeeded < seen.bounds.least_requests:
        raise _Undecided
    queue_s = sum(one.queue_us for one in recent) / 1e6 / succeeded
    compute_s = sum(one.compute_us for one in recent) / 1e6 / succeeded
    share = QUEUE_SHARE_END if seen.begun else QUEUE_SHARE
    least_s = max(bound_s, seen.facts.batch_delay_s * BATCH_DELAYS) * seen.ends
    if queue_s < least_s or queue_s < compute_s * share:
        return None
    until = recent[-1].at + WINDOW_S
    reason = (
        f"{succeeded:,} requests from {_time(recent[0].at)} to {_time(until)} waited "
        f"{_duration(queue_s)} on average to be computed in {_duration(compute_s)}"
    )
    return HealthFinding(recent[0].at, reason, until, seen.now)


_CHECKS: Mapping[str, Callable[[_Judged], HealthFinding | None]] = {
    CRASH_LOOP: _crash_loop,
    ERRORS: _errors,
    QUEUE_FULL: _queue_full,
    SLOW: _slow,
    QUEUE_TIME: _queue_time,
}
"""The worst first."""


def _recent(seen: _Judged, least: int) -> Sequence[AnswerWindow]:
    """The newest windows that have so many requests together. Raises _Undecided."""
    recent: list[AnswerWindow] = []
    requests = 0
    for one in reversed(seen.windows):
        enough = one.at < seen.now - LOOK_S - WINDOW_S and requests >= least
        if enough or one.at < seen.now - KEEP_S - WINDOW_S:
            break
        recent.append(one)
        requests += one.requests
    if requests < least:
        raise _Undecided
    return recent[::-1]


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC")
