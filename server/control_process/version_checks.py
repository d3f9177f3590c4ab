"""The checker of `server.fleet.checks.check` as the control plane knows it."""

from backends.errors import LoadFailed
from control.git.push.version_checks import CheckFailed
from repository.code_use import CodeUse
from repository.model import ModelConfig, ModelVersion
from server.fleet.checks.check import Checker


class CheckerProcesses:
    """Implements `control.git.push.version_checks.VersionChecks`."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    async def complete(self, version: ModelVersion) -> ModelConfig:
        try:
            return await self._checker.complete(version)
        except LoadFailed as error:
            raise CheckFailed(str(error)) from error

    async def code_uses(self, version: ModelVersion) -> tuple[CodeUse, ...]:
        try:
            return await self._checker.code_uses(version)
        except LoadFailed as error:
            raise CheckFailed(str(error)) from error
