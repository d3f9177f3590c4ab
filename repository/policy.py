"""Which of a model's versions its version policy wants served. Pure."""

from collections.abc import Sequence

from repository.model import ModelConfig


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
            wanted = set(policy.specific.versions)
            return tuple(number for number in existing if number in wanted)
        case _:
            return tuple(existing[-(policy.latest.num_versions or 1) :])


def no_version_reason(config: ModelConfig) -> str:
    """Triton's words for a model of which `select` leaves nothing."""
    return (
        f"at least one version must be available under the version policy of model '{config.name}'"
    )
