"""What clients are told of loads that fail and of models that are not there, in Triton's words."""

from collections.abc import Mapping

from server.errors import InvalidRequest, UnknownModel
from server.fleet.managed_model import VersionFailure

NOWHERE = "no such model in the repository"


def unknown(name: str, removed: bool) -> UnknownModel:
    """`removed`: it served once; Triton remembers such models without versions."""
    what = "has no available versions" if removed else "is not found"
    return UnknownModel(f"Request for unknown model: '{name}' {what}")


def poll_failed(name: str) -> str:
    """The reason goes behind."""
    return f"failed to load '{name}', failed to poll from model repository"


def check_name(name: str) -> None:
    """Raises InvalidRequest."""
    if not name.strip():
        raise InvalidRequest("Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequest(
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def load_failed_text(name: str, failed: Mapping[int, VersionFailure]) -> str:
    states = " ".join(
        f"version {number} is at UNAVAILABLE state: Internal: {failure.reason};"
        for number, failure in sorted(failed.items())
    )
    return f"load failed for model '{name}': {states}"
