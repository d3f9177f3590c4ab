"""The health of every version of a gateway: its load state now, and what was found in its windows.

Requests do not come by here: each window that is closed is judged, beside the time series.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from backends.process.health.crash_history import CrashHistory, joined
from control.health import (
    CRASH_LOOP,
    DEGRADED,
    FAILED,
    FAILING,
    HUNG,
    LOADING,
    NO_INSTANCE,
    QUEUE_TIME,
    SLOW,
    UNLOADED,
    VersionHealth,
    of_load,
)
from control.series.points import SeriesPoint, SeriesWindow
from server.health.kept import KeptHealth, RememberedVersion
from server.health.latencies import UsualLatency
from server.health.policy import (
    HOLD_S,
    KEEP_S,
    AnswerWindow,
    HealthBounds,
    VersionFacts,
    judge,
)
from server.served_version import HUNG as HANGS
from server.served_version import (
    LOADING_ON_DEMAND,
    RESTARTING,
    STANDBY,
    ServedVersion,
    ServingState,
    VersionRow,
)

_DEGRADING = (SLOW, QUEUE_TIME)
"""What makes a version DEGRADED; the other findings make it FAILING."""

_CAUSES = {RESTARTING: NO_INSTANCE, HANGS: HUNG}

_ON_DEMAND = {STANDBY: UNLOADED, LOADING_ON_DEMAND: LOADING}
"""What is said of a version that counts as ready while it is not loaded."""

Key = tuple[str, int]

DAY_S = 90_000
"""How long the usual latency of a version that is not loaded is remembered."""


class HealthRow(NamedTuple):
    """A version as the fleet knows it, and how it is; `row.version` None: the model as a whole."""

    row: VersionRow
    health: VersionHealth


class JudgedVersion:
    """What is known of one version."""

    def __init__(self, kept: RememberedVersion | None = None) -> None:
        self.windows: deque[AnswerWindow] = deque()
        self.usual = UsualLatency(kept.hours if kept else ())
        self.findings = dict(kept.findings) if kept else {}
        self.digest = kept.digest if kept else ""
        self.served: ServedVersion | None = None

    def load(self, served: ServedVersion) -> None:
        """What other files answered says nothing of these."""
        if served is self.served:
            return
        if self.served is not None or served.version.digest != self.digest:
            self.windows.clear()
            self.findings = {}
        if served.version.digest != self.digest:
            self.usual = UsualLatency()
        self.served, self.digest = served, served.version.digest

    def is_remembered(self, now: float) -> bool:
        """Forget what was found in a version that is not loaded any more; whether its usual
        latency, or what was found before a restart, is of use when it is loaded again."""
        if self.served is not None:
            self.served = None
            self.windows.clear()
            self.findings = {}
        recent = (one.seen >= now - HOLD_S for one in self.findings.values())
        return any(recent) or any(one.at >= now - DAY_S for one in self.usual.hours)

    def add(self, window: AnswerWindow) -> None:
        self.windows.append(window)
        while self.windows[0].at < window.at - KEEP_S:
            self.windows.popleft()
        self.usual.add(window.at, window.latency)


class HealthMonitor:
    """One gateway's, on the loop's thread. `served` and `rows`: what the fleet has now."""

    def __init__(
        self,
        served: Callable[[], Iterable[ServedVersion]],
        rows: Callable[[], Sequence[VersionRow]],
        bounds: HealthBounds,
        kept: KeptHealth,
    ) -> None:
        self._served = served
        self._rows = rows
        self._bounds = bounds
        self._versions = {(one.model, one.version): JudgedVersion(one) for one in kept.versions}
        self._loads: dict[tuple[str, int | None], VersionHealth] = {}

    def close(self, window: SeriesWindow, now: float) -> Iterator[None]:
        """Judge each loaded version by a window that has ended, one for each step: that takes
        0.05 ms, and 0.3 ms once a minute; let requests go first between them."""
        points = {
            (row.subject.name, row.subject.version): row.point
            for row in window.rows
            if row.subject.kind == "version"
        }
        there: set[Key] = set()
        for served in list(self._served()):
            key = served.version.name, served.version.number
            there.add(key)
            version = self._versions.setdefault(key, JudgedVersion())
            version.load(served)
            self._judge(version, served, window.at, points.get(key), now)
            yield
        for key in self._versions.keys() - there:
            if not self._versions[key].is_remembered(now):
                del self._versions[key]

    def _judge(
        self, version: JudgedVersion, served: ServedVersion, at: int, point: SeriesPoint | None,
        now: float,
    ) -> None:  # fmt: skip
        if point is not None and (answered := _window(at, point)).requests:
            version.add(answered)
        crashes = crashes_of(served)
        if not (version.windows or version.findings or crashes.deaths):
            return
        batching = served.version.config.dynamic_batching
        facts = VersionFacts(
            version.usual.usual_s(now), crashes, batching.max_queue_delay_microseconds / 1e6
        )
        version.findings = judge(version.windows, facts, version.findings, self._bounds, now)

    def rows(self, now: float) -> list[HealthRow]:
        """Every version that the fleet knows anything of."""
        found, loads = [], {}
        for row in self._rows():
            if row.state is None:
                continue
            key = row.name, row.version
            loads[key] = load = self._load(key, row, now)
            found.append(HealthRow(row, self._health(row, load)))
        self._loads = loads
        return found

    def _load(self, key: tuple[str, int | None], row: VersionRow, now: float) -> VersionHealth:
        """Of its load state, since it is so."""
        state = row.state or ServingState.UNLOADED
        known = self._loads.get(key)
        health = of_load(_ON_DEMAND.get(row.reason, state.value), row.reason, now)
        code = _CAUSES.get(row.reason) if state is ServingState.FAILED else None
        health = VersionHealth(health.state, code or health.code, health.reason, now)
        if known is None or (known.state, known.code) != (health.state, health.code):
            return health
        return VersionHealth(known.state, known.code, health.reason, known.since)

    def _health(self, row: VersionRow, load: VersionHealth) -> VersionHealth:
        version = self._versions.get((row.name, row.version or 0))
        if version is None or not version.findings or row.state not in _LOADED:
            return load
        code, finding = next(iter(version.findings.items()))
        if load.state == FAILED and (code != CRASH_LOOP or load.code != NO_INSTANCE):
            return load
        state = DEGRADED if code in _DEGRADING else FAILING
        if state == load.state:
            return load
        return VersionHealth(state, code, finding.reason, finding.since)

    def kept(self) -> KeptHealth:
        """What the next process is to know."""
        return KeptHealth(
            tuple(
                RememberedVersion(*key, one.digest, one.usual.hours, tuple(one.findings.items()))
                for key, one in self._versions.items()
                if one.findings or one.usual.hours
            )
        )


_LOADED = (ServingState.READY, ServingState.FAILED)


def crashes_of(served: ServedVersion) -> CrashHistory:
    """Of all workers of a version."""
    histories = (getattr(one, "crash_history", None) for one in served.instances)
    return joined(one for one in histories if isinstance(one, CrashHistory))


def _window(at: int, point: SeriesPoint) -> AnswerWindow:
    refused = point.failed.get("REJECTED", 0)
    failed = point.errors - refused - point.client_errors
    return AnswerWindow(
        at, point.succeeded, failed, refused, point.queue_us, point.compute_us, point.latency
    )
