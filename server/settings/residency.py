"""Settings of when models are loaded: see `server.fleet.residency`."""

from dataclasses import dataclass

from server.settings.health import HealthSettings
from server.settings.kinds import BOOLEAN, seconds, whole
from server.settings.kinds import setting as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencySettings(HealthSettings):
    """What holds for models whose config does not say otherwise."""

    load_on_demand: bool = _setting(
        "Models",
        BOOLEAN,
        False,
        "Check every model at start and load it by its first request; while memory lacks, the "
        "least recently used of those that are idle are evicted. A model's config may say "
        "otherwise with the parameter load_on_demand.",
    )
    on_demand_timeout_secs: float = _setting(
        "Models",
        seconds(0.1),
        30.0,
        "Longest a request waits for the load on demand of its model; then it is refused with 503 "
        "and Retry-After, and the load goes on.",
    )
    on_demand_max_waiting: int = _setting(
        "Models",
        whole(1, 1_000_000),
        256,
        "Requests that may wait for the load on demand of one version; more are refused with 503.",
    )
    min_residency_secs: float = _setting(
        "Models",
        seconds(0),
        1.0,
        "A model that was loaded on demand is not evicted for so long. A model's config may say "
        "otherwise with the parameter min_residency_secs.",
    )
