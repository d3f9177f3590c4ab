"""Which models need which others: the steps of ensembles. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from repository.model import ModelConfig

NO_CALLEES: tuple[str, ...] = ()


def callees_of(config: ModelConfig) -> tuple[str, ...]:
    """The models that an ensemble's steps name, each once; of MODEL@ALIAS the model."""
    if not config.HasField("ensemble_scheduling"):
        return NO_CALLEES
    names = (step.model_name for step in config.ensemble_scheduling.step)
    return tuple(dict.fromkeys(name.rpartition("@")[0] or name for name in names))


def needed_by(names: Iterable[str], configs: Mapping[str, ModelConfig]) -> set[str]:
    """Every model that these need, near or far; without themselves, unless they need each other."""
    found: set[str] = set()
    pending = [callee for name in names for callee in _of(name, configs)]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _of(name, configs)
    return found


def awaited_by(name: str, configs: Mapping[str, ModelConfig]) -> Iterator[str]:
    """The models to load before this one: its callees, but for those that need it themselves."""
    for callee in _of(name, configs):
        if callee != name and name not in needed_by([callee], configs):
            yield callee


def _of(name: str, configs: Mapping[str, ModelConfig]) -> tuple[str, ...]:
    return callees_of(configs[name]) if name in configs else NO_CALLEES
