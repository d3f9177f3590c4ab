"""The seam to the checks of versions, which run in processes of their own (see
`server.fleet.checks.check`): nothing of a repository is executed by them."""

from typing import Protocol

from repository.code_use import CodeUse
from repository.model import ModelConfig, ModelVersion


class CheckFailed(Exception):
    """A version cannot be served, or could not be checked: the reason, in words for its owner."""


class VersionChecks(Protocol):
    async def complete(self, version: ModelVersion) -> ModelConfig:
        """The config, completed from the artefact; raises CheckFailed."""
        ...

    async def code_uses(self, version: ModelVersion) -> tuple[CodeUse, ...]:
        """All code that serving it would run; raises CheckFailed when that is not found out."""
        ...
