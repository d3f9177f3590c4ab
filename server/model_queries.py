"""What clients ask of models and server beside inference: one answer for all protocols."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from backends.process.instance import HostedInstance
from backends.seam import Instance
from server.dataplane import DataPlane, parse_version, require_ready
from server.errors import InvalidRequest, NotReady, UnknownModel
from server.process.lifecycle import STOPPING
from server.served_version import ServedVersion, ServingState, VersionRow
from server.settings.trace_settings import Given

READY_S = 5.0
"""A python model whose `is_ready` has not answered by then is not ready; Triton's figure."""


class ModelQueries:
    """Answers from what is loaded now. On the event loop's thread."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._models = dataplane.models
        self._tracing = dataplane.tracing
        self._lifecycle = dataplane.lifecycle

    def find(self, name: str, version: str) -> ServedVersion:
        """The version that will answer; `version` as written by the client, "" for any.

        `name` may be MODEL@ALIAS. Raises InvalidRequest, UnknownModel, NotReady.
        """
        if self._lifecycle.stopping:
            raise NotReady(STOPPING)
        return require_ready(self.get(name, version), name)

    def get(self, name: str, version: str) -> ServedVersion:
        """`find` for questions about a model, which are answered while the server stops as well;
        for a route's name by its stable arm. Raises InvalidRequest, UnknownModel, NotReady.
        """
        if (route := self._dataplane.find_route(name, version)) is not None:
            return self._dataplane.find_target(route.targets[0])
        return self._dataplane.find_model(name, version)

    def ready(self) -> bool:
        """Whether the server as a whole is."""
        lifecycle = self._lifecycle
        return not (lifecycle.stopping or lifecycle.fetching) and self._models.ready()

    async def model_ready(self, name: str, version: str) -> bool:
        """False for anything unknown, unloaded, without a live instance, or where a python model's
        own `is_ready` does not say so within five seconds.

        Raises InvalidRequest when the version is no number.
        """
        for served in self._ready_versions(name, version):
            if await _say_ready(served.instances):
                return True
        return False

    def _ready_versions(self, name: str, version: str) -> list[ServedVersion]:
        """Those with a live instance, whatever the model itself says. Raises InvalidRequest."""
        number = parse_version(version) if version else None
        if "@" in name:
            try:
                name, number = self._dataplane.resolve_alias(name, number)
            except UnknownModel:
                return []
        elif (route := self._dataplane.find_route(name, version)) is not None:
            name, number = route.targets[0].model, route.targets[0].version
        return [
            served
            for served in self._models.served()
            if served.ready
            and served.version.name == name
            and number in (None, served.version.number)
        ]

    def index(self, ready_only: bool) -> list[VersionRow]:
        rows = self._models.rows()
        return (
            [row for row in rows if row.state == ServingState.READY] if ready_only else list(rows)
        )

    def statistics(self, name: str, version: str) -> list[ServedVersion]:
        """The loaded versions statistics are asked of; all of them for an empty name.

        Raises InvalidRequest in Triton's words.
        """
        served = list(self._models.served())
        if not name:
            return served
        if "@" in name:
            number = parse_version(version) if version else None
            name, number = self._dataplane.resolve_alias(name, number)
            version = str(number or "")
        of_model = [one for one in served if one.version.name == name]
        if not of_model:
            raise InvalidRequest(f"requested model '{name}' is not available")
        if not version:
            return of_model
        number = parse_version(version)
        of_version = [one for one in of_model if one.version.number == number]
        if not of_version:
            raise InvalidRequest(f"requested model version is not available for model '{name}'")
        return of_version

    def trace_settings(self, model: str) -> dict[str, list[str]]:
        """The trace settings of a model, "" for the global ones, by Triton's names.

        Raises InvalidRequest for a model that is not ready.
        """
        if model and not self._ready_versions(model, ""):
            raise InvalidRequest(f"Request for unknown model : {model}")
        return self._tracing.settings(model)

    def change_trace_settings(self, model: str, given: Given) -> None:
        """Change them as `given` says. Raises InvalidRequest, Unsupported."""
        self.trace_settings(model)
        self._tracing.change(model, given)


async def _say_ready(instances: Sequence[Instance]) -> bool:
    """Whether every live instance that has an `is_ready` says so; never waits for an execution."""
    answers = [
        answer
        for one in instances
        if isinstance(one, HostedInstance) and one.ready and (answer := one.ask_ready())
    ]
    return not answers or await _all_ready(answers)


async def _all_ready(answers: "list[Future[bool]]") -> bool:
    try:
        async with asyncio.timeout(READY_S):
            return all(await asyncio.gather(*map(asyncio.wrap_future, answers)))
    except TimeoutError:
        return False
