"""The settings of Python environments of models. Part of `Settings`."""

from dataclasses import dataclass

from server.settings.kinds import setting, whole
from server.settings.rate_limit import RateLimitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings(RateLimitSettings):
    """What environments may take and bring; docs/environments.md has it all."""

    environment_cache_limit: int = setting(
        "Limits",
        whole(0, 2**50, "BYTES"),
        20 << 30,
        "Disk that Python environments of models may take in the state folder; what no loaded "
        "model uses is removed beyond it, the one that was used longest ago first.",
    )
