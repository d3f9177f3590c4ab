"""Where the fleet looks for models, and what their configs say."""

from typing import Protocol

from repository.model import ModelConfig, Snapshot
from server.settings.table import Settings


class ModelSource(Protocol):
    """Where a load by request looks: the model repositories, or what stands in for them."""

    def snapshot(self) -> Snapshot:
        """What is there now; blocks. Raises BadRepository."""


def configs_in(snapshot: Snapshot) -> dict[str, ModelConfig]:
    """The config of every model that can be loaded, by name."""
    return {name: folder.config for name, folder in snapshot.models.items()}


def longest_load_s(settings: Settings) -> float:
    """Seconds that one load may take with its check and all retries."""
    once = settings.check_timeout_secs + settings.model_load_timeout_secs
    return once * (1 + settings.model_load_retry_count)
