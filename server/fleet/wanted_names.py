"""Which models are wanted by name: those asked for, and those that their ensembles' steps need.
Pure."""

from collections.abc import Iterable, Mapping, Set

from repository.model import ModelConfig
from server.fleet.dependencies import needed_by


class WantedNames:
    """In explicit mode. `asked`: by a setting or a load. `needed`: loaded for an ensemble's step,
    until an unload with its dependents."""

    def __init__(self, asked: Iterable[str]) -> None:
        self.asked = set(asked)
        self.needed: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.asked or name in self.needed

    def ask(self, names: Iterable[str], configs: Mapping[str, ModelConfig]) -> list[str]:
        """Want these; what they need besides, in order."""
        names = set(names)
        self.asked |= names
        more = needed_by(names, configs) - names
        self.needed |= more
        return sorted(more)

    def forget(
        self, name: str, dependents: bool, configs: Mapping[str, ModelConfig], others: Set[str]
    ) -> set[str]:
        """Want it no more; with `dependents`, nor what only its steps needed. Who goes, of which
        the caller may keep some. `others`: models that are wanted besides those by name."""
        self.asked.discard(name)
        leaving = {name}
        if dependents:
            still = needed_by((self.asked & configs.keys()) | others, configs)
            leaving |= (needed_by([name], configs) & self.needed) - still - self.asked
        self.needed -= leaving
        return leaving
