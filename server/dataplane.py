"""The one walk of a request, from its name to its reply; all front ends' way in.

A front end parses, makes an `Inference` of the request and hands it to `infer`; it carries the
Reply back and encodes. What it can ask for besides inference: `server.model_queries`.
"""

from collections.abc import Sequence

from backends.errors import SequenceLost
from backends.seam import Instance
from control.access.scopes import Action
from schedulers.counters import count_failure
from schedulers.errors import Draining, QueueFull, UnknownSequence
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.access.authorizer import Authorizer, public_name
from server.access.token_holder import AuthorizationResult, PermissionHolder
from server.admit import NO_TERMS, read_terms
from server.codec.output_format import InferBody
from server.drift.observer import DriftObserver
from server.errors import InvalidRequest, NotReady, UnknownModel
from server.history.history import LONGEST_ID, RequestHistory
from server.inference import Inference
from server.process.lifecycle import STOPPING, Lifecycle
from server.routing.mirror_requests import copy_for
from server.routing.routing import Routing
from server.routing.table import CompiledRoute, Target
from server.samples.samples import Samples
from server.sequence_copies import first, supersede_copies
from server.served_version import Models, ServedVersion, not_ready_text
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.trace.record import Trace
from server.trace.tracing import Tracing

_VERSION_DIGITS = 18
"""A version is an int64, and Python turns no more than 4,300 digits into an int."""

_SHOWN_CHARACTERS = 64


class DataPlane:
    """The one way in for every wire. All methods belong to the event loop's thread.

    `name` and `version` are the server's. `lifecycle` is the gateway's, and only read here.
    """

    def __init__(
        self,
        models: Models,
        name: str,
        version: str,
        shared_memory: SharedMemory = DISALLOWED,
        authorizer: Authorizer | None = None,
        tracing: Tracing | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self.models = models
        self.name = name
        self.version = version
        self.shared_memory = shared_memory
        self.authorizer = authorizer or Authorizer()
        self.tracing = tracing or Tracing()
        self.lifecycle = lifecycle or Lifecycle()
        self.routing = Routing(self._send_copy, self._running)
        self.samples = Samples(self._observe)
        self.drift = DriftObserver(self._observe)
        self._observes = False
        self.history = RequestHistory()
        self._ended = self.history.ended

    # a request's way in

    def infer(self, inference: Inference) -> Reply:
        """Take one request the whole way in, whichever protocol brought it:

        authorise → sequence or sticky key → pick arm → find version → trace → decode against its
        signature → deadline and priority → sample → submit → mirror.

        `inference` has its target and its trace by then, as far as it came, also when this raises.
        """
        return self.submit(inference, self.find_for(inference))

    def find_for(self, inference: Inference) -> ServedVersion:
        """The steps up to the version. Asked again, it keeps to the arm that it has picked.

        Raises Forbidden, InvalidRequest, UnknownModel, NotReady.
        """
        try:
            return self._find_for(inference)
        except Exception as error:
            if isinstance(error, UnknownModel | NotReady):
                holder = self._holder_of(inference)
                if holder is not None:
                    return holder
            self.history.refused(inference, 0, error)
            raise

    def _find_for(self, inference: Inference) -> ServedVersion:
        if inference.holder is not None:
            self.authorise(inference.holder, Action.INFER, inference.model)
        if self.lifecycle.stopping and inference.context is None:
            raise NotReady(STOPPING)
        target = inference.target
        if target is None:
            name, version = inference.model, inference.version
            route = self.find_route(name, version)
            if route is None:
                return require_ready(self.find_model(name, version), name)
            inference.target = target = self.routing.select(route, inference)
        return self._find_arm(target, inference)

    def submit(self, inference: Inference, served: ServedVersion) -> Reply:
        """The steps behind `find_for`. Call it in the same turn of the loop: the fleet swaps
        versions between turns, so what was found cannot have begun to drain.

        Raises what decoding does, NotReady, QueueFull.
        """
        if self.tracing.on and inference.trace is None:
            inference.trace = self._begin_trace(inference, served)
        try:
            body = inference.decode(served)
            inference.client_id = inference.client_id or body.id[:LONGEST_ID]
            request = _request(inference, served, body)
            if inference.trace is not None:
                inference.trace.admitted(request)
            if request.sequence is not None:
                return self._submit_of_sequence(inference, served, request)
            return self._schedule_seen(served, request, inference.target)
        except Exception as error:
            holder = self._holder_of(inference)
            if holder is not None and holder is not served:
                return self.submit(inference, holder)
            if isinstance(error, UnknownSequence | SequenceLost):
                count_failure(served.counters, error, 0)
            inference.refused(error)
            self.history.refused(inference, served.version.number, error)
            raise

    def _submit_of_sequence(
        self, inference: Inference, served: ServedVersion, request: InferRequest
    ) -> Reply:
        """A request of a sequence, which its route remembers once it is taken. A copy that an
        earlier start of the same id has left on another arm, or on a version that drains, is over
        with this start."""
        target, member = inference.target, request.sequence
        assert member is not None
        reply = self._schedule_seen(served, request, target)
        before = None if target is None else self.routing.keep(target, member)
        if member.start:
            named = bool(inference.version) or "@" in inference.model or target is not None
            number = request.version if named else None
            supersede_copies(self.models, served, request.model, number, member.key)
            if before is not None:
                supersede_copies(self.models, served, before.model, before.version, member.key)
        return reply

    def _holder_of(self, inference: Inference) -> ServedVersion | None:
        """The version on which the request's sequence goes on, where another one does not take it:
        after a reload, an unload or a change of a route, and while the server stops. It is looked
        for only then, so that no other request pays for it."""
        sequence = inference.sequence()
        if sequence is None or sequence.start:
            return None
        name, version = inference.model, inference.version
        target, route = inference.target, self.find_route(name, version)
        if target is None and route is not None:
            inference.target = target = self.routing.select(route, inference)
        if target is not None:
            return first(self.models.holders_of(target.model, target.version, sequence.key))
        try:
            number = parse_version(version) if version else None
            if "@" in name:
                name, number = self.resolve_alias(name, number)
        except (InvalidRequest, UnknownModel):
            return None
        return first(self.models.holders_of(name, number, sequence.key))

    # from a public name (a model's, a route's or MODEL@ALIAS) to a loaded version

    def find_route(self, name: str, version: str) -> CompiledRoute | None:
        """How a public name's requests are split; None for a name that is no route's, and where
        an explicit version bypasses it."""
        return None if version else self.routing.table.get(name)

    def find_model(self, name: str, version: str) -> ServedVersion:
        """The version of a model, or of MODEL@ALIAS; the highest ready one for "".

        Raises InvalidRequest, UnknownModel, NotReady.
        """
        number = parse_version(version) if version else None
        if "@" in name:
            name, number = self.resolve_alias(name, number)
        return self.models.get(name, number)

    def find_target(self, target: Target) -> ServedVersion:
        """The version that an arm of a route leads to. Raises UnknownModel, NotReady."""
        if not target.version:
            raise UnknownModel(
                f"Request for unknown model: the arm '{target.arm}' of the route '{target.route}' "
                f"leads to an alias of '{target.model}' that does not exist"
            )
        return self.models.get(target.model, target.version)

    def resolve_alias(self, name: str, version: int | None) -> tuple[str, int | None]:
        """What MODEL@ALIAS stands for; the name itself where it is a model's own.

        Raises UnknownModel, InvalidRequest for a version the alias does not stand for.
        """
        model, _, alias = name.rpartition("@")
        aliases = self.routing.aliases.get(model, {})
        number = aliases.get(alias)
        if number is None:
            if not aliases and any(row.name == name for row in self.models.rows()):
                return name, version
            has = ", ".join(sorted(aliases)) or "none"
            raise UnknownModel(
                f"Request for unknown model: '{model}' has no alias '{alias}'; it has {has}"
            )
        if version not in (None, number):
            raise InvalidRequest(
                f"'{name}' stands for version {number}, and version {version} was asked for; "
                "name the alias or the version"
            )
        return model, number

    # its steps, and what else asks for one of them

    def authorise(self, holder: PermissionHolder, action: Action, name: str) -> None:
        """Raises Forbidden. `name`: of a model, as the client wrote it."""
        self.authorizer.authorise(holder, action, public_name(name, self.routing.aliases))

    def judge(
        self, authorization: bytes | str | None, action: Action, name: str
    ) -> AuthorizationResult:
        """Authorise by a request's head, before its body is read; it counts against the rate."""
        return self.authorizer.judge(authorization, action, public_name(name, self.routing.aliases))

    def _find_arm(self, target: Target, inference: Inference) -> ServedVersion:
        """The version that a route has picked; that it cannot answer counts against its arm, unless
        the server as a whole is starting, or the request's sequence goes on elsewhere.

        Raises UnknownModel, NotReady.
        """
        try:
            return require_ready(self.find_target(target), target.model)
        except (UnknownModel, NotReady):
            if not self.lifecycle.starting and self._holder_of(inference) is None:
                target.window.refused()
            raise

    def _begin_trace(self, inference: Inference, served: ServedVersion) -> Trace | None:
        if inference.context is not None:  # its trace is a child of the caller's
            return inference.trace
        version = served.version
        trace = self.tracing.begin(version.name, version.number, inference.receipt())
        if trace is not None:
            trace.arm = inference.arm
        return trace

    def schedule_inside(self, served: ServedVersion, request: InferRequest) -> Reply:
        """The last steps for a call from inside the server, which no route leads to. Raises
        NotReady, QueueFull."""
        return self._schedule_seen(served, request, None)

    def _schedule_seen(
        self, served: ServedVersion, request: InferRequest, target: Target | None
    ) -> Reply:
        if self._observes:
            return self._schedule_observed(served, request, target)
        return self.schedule(served, request, target)

    def schedule(
        self, served: ServedVersion, request: InferRequest, target: Target | None
    ) -> Reply:
        """Hand the request to the version's scheduler; how it ends is counted for its target, and
        the target's mirrors get their copies. Raises NotReady, QueueFull.
        """
        try:
            reply = served.scheduler.submit(request)
        except (QueueFull, Draining) as error:
            if target is not None:
                target.window.refused()
            raise refusal(served, request, error) from error
        except NotReady:  # of one that is to be loaded on demand, which has counted it
            if target is not None:
                target.window.refused()
            raise
        if reply.ended:
            self._ended(reply)
        else:
            reply.recorder = self._ended
        if target is None:
            return reply
        target.window.follow(reply, request.arrived_ns)
        if target.assignment is not None or target.exposure is not None:
            self.routing.note_assignment(target)
        if target.mirrors and not served.signature.decoupled:
            self.routing.mirrors.offer(target.mirrors, request)
        return reply

    def _observe(self) -> None:
        self._observes = self.samples.on or self.drift.on

    def _schedule_observed(
        self, served: ServedVersion, request: InferRequest, target: Target | None
    ) -> Reply:
        """With a sample of it kept, or its features counted, where its model's rules choose it."""
        arm, decoupled = target.label if target is not None else "", served.signature.decoupled
        sample = self.samples.begin(request, arm, decoupled) if self.samples.on else None
        counted = self.drift.begin(request, served.signature) if self.drift.on else None
        try:
            reply = self.schedule(served, request, target)
        except (QueueFull, NotReady) as error:
            if sample is not None:
                sample.refused(error)
            raise
        if sample is not None:
            reply.watch(sample.ended)
        if counted is not None:
            reply.watch(counted.ended)
        return reply

    def _send_copy(self, target: Target, request: InferRequest, until_ns: int) -> Reply:
        """Raises InvalidRequest where the target takes no such request, UnknownModel, NotReady,
        QueueFull."""
        if self.lifecycle.starting:
            raise InvalidRequest("the server is starting: no requests are mirrored yet")
        served = require_ready(self.find_target(target), target.model)
        lowest = served.version.config.dynamic_batching.priority_levels
        return served.scheduler.submit(copy_for(served.signature, request, lowest, until_ns))

    def _running(self, model: str, version: int) -> Sequence[Instance]:
        """What executes a version now."""
        try:
            return self.models.get(model, version).instances if version else ()
        except (UnknownModel, NotReady):
            return ()


def require_ready(served: ServedVersion, name: str) -> ServedVersion:
    """It, if it takes requests now. Raises NotReady."""
    if not served.ready:
        number = served.version.number
        awaited = f"version {number} has {served.not_ready_reason}"
        raise NotReady(not_ready_text(name, number), awaited)
    return served


def parse_version(text: str) -> int:
    """A version number as a client writes it. Raises InvalidRequest in Triton's words."""
    if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS and int(text) > 0:
        return int(text)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    raise InvalidRequest(
        f"failed to get model version from specified version string '{shown}' "
        "(details: stol), version should be an integral value > 0"
    )


def _request(inference: Inference, served: ServedVersion, body: InferBody) -> InferRequest:
    """The request, complete. Raises InvalidRequest for a header that cannot be forwarded."""
    signature, parameters = served.signature, body.parameters
    if inference.forwarding is not None:
        parameters = {**parameters, **inference.forwarding.parameters(inference.text_headers())}
    sequence, priority, timeout_us, rest = read_terms(parameters) if parameters else NO_TERMS
    target = inference.target
    return InferRequest(
        signature.model,
        signature.version,
        body.inputs,
        body.rows,
        body.shape_key,
        inference.arrived_ns,
        body.id,
        body.requested_outputs,
        rest,
        priority,
        timeout_us,
        inference.deadline_ns,
        sequence,
        inference.principal,
        inference.trace,
        inference.number,
        inference.part,
        "" if target is None else target.label,
        inference.client_id,
        inference.context,
    )


def refusal(
    served: ServedVersion, request: InferRequest, error: QueueFull | Draining
) -> QueueFull | NotReady:
    """What the client is told when a scheduler does not accept a request; counted here."""
    if isinstance(error, Draining):
        return NotReady(not_ready_text(request.model, request.version))
    served.counters.failure["REJECTED"] += 1
    full = QueueFull(f"[request id: {request.id or '<id_unknown>'}] {error}")
    full.retry_after_s = error.retry_after_s
    return full
