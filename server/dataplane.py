"""Find the model, hand over the request: what REST and gRPC share.

A door (`server.rest.app`, `server.grpc.door`) calls `find`, decodes with the model's signature,
then calls `submit` and carries the Reply back. Everything else here is what both doors can ask for
besides inference.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from backends.seam import Instance
from schedulers.errors import Draining, QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.access.gate import Gate
from server.errors import InvalidRequest, NotReady, UnknownModel
from server.overrides import Override
from server.routing.copies import copy_for
from server.routing.routing import Routing
from server.routing.table import Route, Target
from server.samples.samples import Samples
from server.served import MemoryRow, Served, State, VersionRow
from server.settings.trace_settings import Given
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.trace.record import Received, Trace
from server.trace.tracing import Tracing

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

_VERSION_DIGITS = 18
"""A version is an int64, and Python turns no more than 4,300 digits into an int."""
_SHOWN_CHARACTERS = 64

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class Models(Protocol):
    """What the data plane needs of the fleet."""

    def get(self, name: str, version: int | None) -> Served:
        """The version asked for, or the highest ready one. Raises UnknownModel, NotReady."""

    def served(self) -> Sequence[Served]:
        """Every version that answers requests now."""

    def rows(self) -> Sequence[VersionRow]:
        """Every version known, by name and number."""

    def memory_rows(self) -> Sequence[MemoryRow]:
        """Budgets of memory, and what was granted of them."""

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
        self.starting = False
        self.aliases: Mapping[str, Mapping[str, int]] = {}
        self.gate = Gate()
        self.routing = Routing(self._send_copy, self._running)
        self.samples = Samples()

    def find(self, name: str, version: str) -> Served:
        """The version that will answer; `version` as written by the client, "" for any.

        `name` may be MODEL@ALIAS. Raises InvalidRequest, UnknownModel, NotReady.
        """
        if self.stopping:
            raise NotReady(STOPPING)
        served = self.get(name, version)
        if not served.ready:
            raise NotReady(not_ready_text(name, served.version.number))
        return served

    def get(self, name: str, version: str) -> Served:
        """`find` for questions about a model, which are answered while the server stops as well;
        for a route's name by its stable arm. Raises InvalidRequest, UnknownModel, NotReady.
        """
        number = parse_version(version) if version else None
        if "@" in name:
            name, number = self._aliased(name, number)
        elif (route := self.route_of(name, version)) is not None:
            return self._led_to(route.targets[0])
        return self.models.get(name, number)

    def route_of(self, name: str, version: str) -> Route | None:
        """How a public name's requests are split; None for a name that is no route's, and where
        an explicit version bypasses it. Then `routing.pick` says who answers, `find_target` finds
        it, and `submit` is told of it."""
        return None if version else self.routing.table.get(name)

    def find_target(self, target: Target) -> Served:
        """`find` for whom a route has picked; that it cannot answer counts against its arm, unless
        the server as a whole is starting or stopping.

        Raises UnknownModel, NotReady.
        """
        try:
            if self.stopping:
                raise NotReady(STOPPING)
            if target.version:  # as `_led_to`, without the call
                served = self.models.get(target.model, target.version)
            else:
                served = self._led_to(target)
            if not served.ready:
                raise NotReady(not_ready_text(target.model, target.version))
        except (UnknownModel, NotReady):
            if not (self.stopping or self.starting):
                target.window.refused()
            raise
        return served

    def _led_to(self, target: Target) -> Served:
        if not target.version:
            raise UnknownModel(
                f"Request for unknown model: the arm '{target.arm}' of the route '{target.route}' "
                f"leads to an alias of '{target.model}' that does not exist"
            )
        return self.models.get(target.model, target.version)

    def _aliased(self, name: str, version: int | None) -> tuple[str, int | None]:
        """What MODEL@ALIAS stands for; the name itself where it is a model's own.

        Raises UnknownModel, InvalidRequest for a version the alias does not stand for.
        """
        model, _, alias = name.rpartition("@")
        known = self.aliases.get(model, {})
        number = known.get(alias)
        if number is None:
            if not known and any(row.name == name for row in self.models.rows()):
                return name, version
            has = ", ".join(sorted(known)) or "none"
            raise UnknownModel(
                f"Request for unknown model: '{model}' has no alias '{alias}'; it has {has}"
            )
        if version not in (None, number):
            raise InvalidRequest(
                f"'{name}' stands for version {number}, and version {version} was asked for; "
                "name the alias or the version"
            )
        return model, number

    def submit(self, served: Served, request: InferRequest, target: Target | None = None) -> Reply:
        """Hand the request to the model's scheduler. Raises NotReady, QueueFull.

        Call it in the same turn of the loop as `find`: the fleet swaps versions between turns, so
        what was found cannot have begun to drain. `target`: what a route has picked; how the
        request ends is counted for it, and its mirrors get their copies.
        """
        if self.samples.on:
            return self._submit_sampled(served, request, target)
        if target is not None:
            return self._submit_routed(served, request, target)
        return self._scheduled(served, request)

    def _scheduled(self, served: Served, request: InferRequest) -> Reply:
        try:
            return served.scheduler.submit(request)
        except (QueueFull, Draining) as error:
            raise _refusal(served, request, error) from error

    def _submit_routed(self, served: Served, request: InferRequest, target: Target) -> Reply:
        try:
            reply = served.scheduler.submit(request)
        except (QueueFull, Draining) as error:
            target.window.refused()
            raise _refusal(served, request, error) from error
        target.window.follow(reply, request.arrived_ns)
        if target.lot is not None or target.exposure is not None:
            self.routing.met(target)
        if target.mirrors and not served.signature.decoupled:
            self.routing.mirrors.offer(target.mirrors, request)
        return reply

    def _submit_sampled(
        self, served: Served, request: InferRequest, target: Target | None
    ) -> Reply:
        arm = target.label if target is not None else ""
        sample = self.samples.begin(request, arm, served.signature.decoupled)
        try:
            if target is not None:
                reply = self._submit_routed(served, request, target)
            else:
                reply = self._scheduled(served, request)
        except (QueueFull, NotReady) as error:
            if sample is not None:
                sample.refused(error)
            raise
        if sample is not None:
            reply.watch(sample.ended)
        return reply

    def _send_copy(self, target: Target, request: InferRequest, until_ns: int) -> Reply:
        """Raises InvalidRequest where the target takes no such request, UnknownModel, NotReady,
        QueueFull."""
        if self.starting:
            raise InvalidRequest("the server is starting: no copies are made yet")
        served = self._led_to(target)
        if not served.ready:
            raise NotReady(not_ready_text(target.model, target.version))
        lowest = served.version.config.dynamic_batching.priority_levels
        return served.scheduler.submit(copy_for(served.signature, request, lowest, until_ns))

    def _running(self, model: str, version: int) -> Sequence[Instance]:
        """What executes a version now."""
        try:
            return self.models.get(model, version).instances if version else ()
        except (UnknownModel, NotReady):
            return ()

    def submit_followed(
        self,
        served: Served,
        request: InferRequest,
        received: Received,
        target: Target | None = None,
    ) -> tuple[Reply, Trace | None]:
        """`submit` while tracing is on: with the trace, if the request is one to be traced.

        The caller ends the trace; when this raises, it has been ended.
        """
        trace = self.tracing.begin(request.model, request.version, received)
        if trace is None:
            return self.submit(served, request, target), None
        trace.arm = target.label if target is not None else ""
        trace.admitted(request)
        try:
            return self.submit(served, request, target), trace
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
        if "@" in name:
            try:
                name, number = self._aliased(name, number)
            except UnknownModel:
                return False
        elif (route := self.route_of(name, version)) is not None:
            name, number = route.targets[0].model, route.targets[0].version
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
        if "@" in name:
            name, number = self._aliased(name, parse_version(version) if version else None)
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
        if model and not self.model_ready(model, ""):
            raise InvalidRequest(f"Request for unknown model : {model}")
        return self.tracing.settings(model)

    def change_trace_settings(self, model: str, given: Given) -> None:
        """Change them as `given` says. Raises InvalidRequest, Unsupported."""
        self.trace_settings(model)
        self.tracing.change(model, given)


def _refusal(
    served: Served, request: InferRequest, error: QueueFull | Draining
) -> QueueFull | NotReady:
    """What the client is told when a scheduler does not accept a request; counted here."""
    if isinstance(error, Draining):
        return NotReady(not_ready_text(request.model, request.version))
    served.counters.failure["REJECTED"] += 1
    full = QueueFull(f"[request id: {request.id or '<id_unknown>'}] {error}")
    full.retry_after_s = error.retry_after_s
    return full


def not_ready_text(name: str, version: int) -> str:
    return f"Request for unknown model: '{name}' version {version} is not at ready state"


def parse_version(text: str) -> int:
    """A version number as a client writes it. Raises InvalidRequest in Triton's words."""
    if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS and int(text) > 0:
        return int(text)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    raise InvalidRequest(
        f"failed to get model version from specified version string '{shown}' "
        "(details: stol), version should be an integral value > 0"
    )
