"""What a deployment means to who answers a model's name: read from the sealed snapshots."""

from collections.abc import Iterator, Mapping

from control.errors import Invalid
from control.rollouts.plan import RolloutPlan
from control.rollouts.plan_keys import parameters_plan
from control.rollouts.promotion import Promotion
from repository.model import ModelConfig, ModelFolder
from repository.policy import default_version, selected_versions
from repository.snapshots.sealed_models import SnapshotStore


def successions(
    store: SnapshotStore, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[Promotion]:
    """Per model of `after`; both map models to the digests of their snapshots. Blocks.

    A model whose snapshot cannot be read is left out: its load will say why.
    """
    for model, digest in sorted(after.items()):
        new = store.sealed(digest)
        if isinstance(new, str):
            continue
        old = store.sealed(before[model]) if model in before else None
        yield Promotion(
            model,
            _default(old) if isinstance(old, ModelFolder) else None,
            _default(new),
            plan_of(new.config),
        )


def plan_of(config: ModelConfig) -> RolloutPlan | None:
    """The rollout plan in a config's parameters; None when there is none, or none that can be
    followed: a push with one is refused."""
    try:
        return parameters_plan(texts_of(config))
    except Invalid:
        return None


def texts_of(config: ModelConfig) -> dict[str, str]:
    return {name: value.string_value for name, value in config.parameters.items()}


def _default(folder: ModelFolder) -> int | None:
    return default_version(folder, tuple(selected_versions(folder)))
