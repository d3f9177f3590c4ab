"""Find the model, hand over the request: what REST and gRPC share.

A door (`server.rest`, `server.grpc_door`) calls `find`, decodes with the model's signature, then
calls `submit` and carries the Reply back. Everything else here is what both doors can ask for
besides inference.
"""

from collections.abc import Sequence
from typing import Protocol

from schedulers.errors import Draining, QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.errors import InvalidRequest, NotReady
from server.served import Served, State, VersionRow

EXTENSIONS = (
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
)
"""The v2 extensions this server offers, in Triton's names and order."""


class Models(Protocol):
    """What the data plane needs of the fleet."""

    def get(self, name: str, version: int | None) -> Served:
        """The version asked for, or the highest ready one. Raises UnknownModel, NotReady."""

    def served(self) -> Sequence[Served]:
        """Every version that answers requests now."""

    def rows(self) -> Sequence[VersionRow]:
        """Every version known, by name and number."""

    def ready(self) -> bool:
        """Whether the server as a whole is ready (strict readiness included)."""

    async def load(self, name: str) -> None:
        """Load or reload by explicit request. Raises Unsupported, ModelLoadFailed."""

    async def unload(self, name: str, dependents: bool) -> None:
        """Unload by explicit request; an unknown name is not an error. Raises Unsupported."""


class DataPlane:
    """The one way in for every wire. All methods belong to the event loop's thread."""

    def __init__(self, models: Models, name: str, version: str) -> None:
        self.models = models
        self.name = name
        self.version = version
        self.stopping = False

    def find(self, name: str, version: str) -> Served:
        """The version that will answer; `version` as written by the client, "" for any.

        Raises InvalidRequest, UnknownModel, NotReady.
        """
        if self.stopping:
            raise NotReady("Server is stopping, it accepts no new inference requests")
        served = self.models.get(name, parse_version(version) if version else None)
        if not served.ready:
            raise NotReady(not_ready_text(name, served.version.number))
        return served

    def submit(self, served: Served, request: InferRequest) -> Reply:
        """Hand the request to the model's scheduler. Raises NotReady, QueueFull.

        Call it in the same turn of the loop as `find`: the fleet swaps versions between turns, so
        what was found cannot have begun to drain.
        """
        try:
            return served.scheduler.submit(request)
        except QueueFull as error:
            served.counters.failure["REJECTED"] += 1
            raise QueueFull(f"[request id: {request.id or '<id_unknown>'}] {error}") from error
        except Draining as error:
            raise NotReady(not_ready_text(request.model, request.version)) from error

    def ready(self) -> bool:
        return not self.stopping and self.models.ready()

    def model_ready(self, name: str, version: str) -> bool:
        """False for anything unknown, unloaded or without a live instance.

        Raises InvalidRequest when the version is no number.
        """
        number = parse_version(version) if version else None
        return any(
            served.ready
            for served in self.models.served()
            if served.version.name == name and number in (None, served.version.number)
        )

    def index(self, ready_only: bool) -> list[VersionRow]:
        rows = self.models.rows()
        return [row for row in rows if row.state == State.READY] if ready_only else list(rows)

    def statistics(self, name: str, version: str) -> list[Served]:
        """The loaded versions statistics are asked of; all of them for an empty name.

        Raises InvalidRequest in Triton's words.
        """
        served = list(self.models.served())
        if not name:
            return served
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


def not_ready_text(name: str, version: int) -> str:
    return f"Request for unknown model: '{name}' version {version} is not at ready state"


def parse_version(text: str) -> int:
    """A version number as a client writes it. Raises InvalidRequest in Triton's words."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise InvalidRequest(
        f"failed to get model version from specified version string '{text}' "
        "(details: stol), version should be an integral value > 0"
    )
