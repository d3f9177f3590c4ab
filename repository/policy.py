"""Select the versions of a model to serve, and the one that answers by default. Pure."""

from collections.abc import Collection, Sequence

from repository.model import ModelConfig, ModelFolder, ModelVersion


def select(config: ModelConfig, numbers: Sequence[int]) -> tuple[int, ...]:
    """The versions to serve of those that exist, ascending; latest 1 when there is no policy.

    A listed version that does not exist is left out, as in Triton.
    """
    policy = config.version_policy
    existing = sorted(set(numbers))
    match policy.WhichOneof("policy_choice"):
        case "all":
            return tuple(existing)
        case "specific":
            versions = set(policy.specific.versions)
            return tuple(number for number in existing if number in versions)
        case _:
            return tuple(existing[-(policy.latest.num_versions or 1) :])


def no_version_reason(config: ModelConfig) -> str:
    """Triton's words for a model of which `select` leaves nothing."""
    return (
        f"at least one version must be available under the version policy of model '{config.name}'"
    )


def selected_versions(folder: ModelFolder) -> dict[int, ModelVersion]:
    """Those of the policy alone: what a request that names no version may reach."""
    if folder.only_pinned:
        return {}
    by_number = {version.number: version for version in folder.versions}
    return {number: by_number[number] for number in select(folder.config, tuple(by_number))}


def default_version(folder: ModelFolder | None, serving: Collection[int]) -> int | None:
    """The version that answers who names none: the highest that serves.

    One that is kept only because something refers to it answers only if there is no other: a
    candidate that is loaded beside the stable version must not get traffic by its number alone.
    """
    selected = set(selected_versions(folder)) if folder else set()
    pinned = {pin.version.number for pin in folder.pins} - selected if folder else set()
    return max(set(serving) - pinned or serving, default=None)
