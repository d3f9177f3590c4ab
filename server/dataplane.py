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
from server.overrides import Override
from server.served import Served, State, VersionRow
from server.shared_memory import DISALLOWED, SharedMemory
from server.trace import Tracing
from server.trace_record import Received, Trace
from server.trace_settings import Given

EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""The v2 extensions this server offers, in Triton's names and order."""

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


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

    async def load(self, name: str, override: Override | None = None) -> None:
        """Load or reload by explicit request, `override` in place of what the repository has.

        Raises NotReady, InvalidRequest, ModelLoadFailed, Internal.
        """

    async def unload(self, name: str, dependents: bool) -> None:
        """Unload by explicit request; an unknown name is not an error. Raises NotReady."""


class DataPlane:
    """The one way in for every wire. All methods belong to the event loop's thread."""

    def __init__(
        self, models: Models, name: str, version: str, shared_memory: SharedMemory = DISALLOWED
    ) -> None:
        self.models = models
        self.name = name
        self.version = version
        self.shared_memory = shared_memory
        self.tracing = Tracing()
        self.stopping = False

    def find(self, name: str, version: str) -> Served:
        """The version that will answer; `version` as written by the client, "" for any.

        Raises InvalidRequest, UnknownModel, NotReady.
        """
        if self.stopping:
            raise NotReady(STOPPING)
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

    def submit_followed(
        self, served: Served, request: InferRequest, received: Received
    ) -> tuple[Reply, Trace | None]:
        """`submit` while tracing is on: with the trace, if the request is one to be traced.

        The caller ends the trace; when this raises, it has been ended.
        """
        trace = self.tracing.begin(request.model, request.version, received)
        if trace is None:
            return self.submit(served, request), None
        trace.admitted(request)
        try:
            return self.submit(served, request), trace
        except (QueueFull, NotReady) as error:
            trace.failed(error)
            trace.end()
            raise

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

    def trace_settings(self, model: str) -> dict[str, list[str]]:
        """The trace settings of a model, "" for the global ones, by Triton's names.

        Raises InvalidRequest for a model that is not ready.
        """
        if model and not self.model_ready(model, ""):
            raise InvalidRequest(f"Request for unknown model : {model}")
        return self.tracing.settings(model)

    def change_trace_settings(self, model: str, given: Given) -> None:
        """Change them as `given` says. Raises InvalidRequest, Unsupported."""
        self.trace_settings(model)
        self.tracing.change(model, given)


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
