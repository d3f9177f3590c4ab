"""The names of models that served and are gone: requests for them are told so. Pure."""

MOST_REMOVED = 10_000
"""Names that are remembered; the oldest is forgotten first."""


class RemovedModels:
    """Bounded, in order of leaving."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > MOST_REMOVED:
            del self._names[next(iter(self._names))]
