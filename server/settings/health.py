"""The bounds from which on a version is not well. Part of `Settings`."""

from dataclasses import dataclass

from server.settings.environments import EnvironmentSettings
from server.settings.kinds import fraction, setting, times, whole
from server.settings.kinds import seconds as _seconds

_HEALTH = "Health"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings(EnvironmentSettings):
    """What counts as failing, slow, crash-looping and starved; docs/health.md has it all."""

    health_error_rate: float = setting(
        _HEALTH,
        fraction(),
        0.1,
        "Share of the requests that fail, or are refused by a full queue, from which on a version "
        "is FAILING; at least 5 of them. What clients got wrong does not count. 0: no bound.",
    )
    health_least_requests: int = setting(
        _HEALTH,
        whole(1, 1_000_000),
        10,
        "Requests of the last minute without which an earlier time, 15 minutes at most, is judged "
        "with it.",
    )
    health_slow_factor: float = setting(
        _HEALTH,
        times(),
        2.0,
        "A version whose p95 of five minutes is so many times the usual one of its last day is "
        "DEGRADED. 0: no bound.",
    )
    health_queue_secs: float = setting(
        _HEALTH,
        _seconds(0),
        0.1,
        "A version whose requests wait so long on average, and three times as long as they are "
        "computed, is DEGRADED. 0: no bound.",
    )
    health_crashes: int = setting(
        _HEALTH,
        whole(0, 1_000_000),
        3,
        "Crashes of a version's workers, one within ten minutes of the other, from which on it is "
        "FAILING. 0: no bound.",
    )
