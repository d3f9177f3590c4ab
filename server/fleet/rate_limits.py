"""What the rate limiter is told of a version's instances, from its config's `instance_group`.

Called by `server.fleet.loading` before a version is loaded, so that one that could never execute is
refused, and when it has its instances.
"""

from collections.abc import Iterable, Iterator, Sequence

from backends.errors import LoadFailed
from backends.seam import Instance
from repository.model import ModelConfig
from schedulers.policy.resource_limits import (
    GLOBAL,
    InstanceLimit,
    Resource,
    ResourceError,
    ResourceLimiter,
)
from server.settings.rate_limit import resource_counts
from server.settings.table import Settings

ON_CPU = 0
"""The device of resources that instances on the CPU need, as in Triton."""


class RateLimits:
    """The server's limiter, if it has one: then array models' instances are registered there."""

    def __init__(self, settings: Settings) -> None:
        self.limiter: ResourceLimiter | None = None
        if settings.rate_limit == "execution_count":
            self.limiter = ResourceLimiter(resource_counts(settings.rate_limit_resource))

    def check(self, config: ModelConfig, beside: Sequence[Instance] = ()) -> None:
        """Raise LoadFailed where an instance of a config with resolved groups could never execute.
        `beside`: instances that it has already."""
        if self.limiter is None or not takes_resources(config):
            return
        try:
            self.limiter.check((limit for _, limit in limits_of(config)), beside)
        except ResourceError as error:
            raise LoadFailed(f"model '{config.name}': {error}") from None

    def register(self, config: ModelConfig, instances: Sequence[Instance]) -> None:
        """Tell the limiter of all instances of a version, unless their executions take nothing.
        Raises LoadFailed, as `check`."""
        if self.limiter is None or not takes_resources(config):
            return
        waiting: dict[str, list[InstanceLimit]] = {}
        for device, limit in limits_of(config):
            waiting.setdefault(device, []).append(limit)
        try:
            self.limiter.register({one: waiting[one.device].pop(0) for one in instances})
        except ResourceError as error:
            raise LoadFailed(f"model '{config.name}': {error}") from None

    def forget(self, instances: Iterable[Instance]) -> None:
        """They never came to serve."""
        if self.limiter is not None:
            for one in instances:
                self.limiter.unregister(one)


def takes_resources(config: ModelConfig) -> bool:
    """Whether executions of its instances may be limited; those of language models are not."""
    return bool(config.backend != "llm")


def limits_of(config: ModelConfig) -> Iterator[tuple[str, InstanceLimit]]:
    """Device ("cpu", "cuda:0") and limit of each instance of a config with resolved groups, in the
    order in which they are placed."""
    for group in config.instance_group:
        if group.passive:
            continue
        wanted = group.rate_limiter
        for gpu in group.gpus or (None,):
            number = ON_CPU if gpu is None else gpu
            needs = {
                Resource(one.name, GLOBAL if getattr(one, "global") else number): one.count
                for one in wanted.resources
            }
            limit = InstanceLimit(needs, max(1, wanted.priority))
            for _ in range(group.count):
                yield "cpu" if gpu is None else f"cuda:{gpu}", limit
