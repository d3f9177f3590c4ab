"""The one walk of a request, from its name to its reply; all front ends' way in.

A front end parses, makes an `Inference` of the request and hands it to `infer`; it carries the
Reply back and encodes. What it can ask for besides inference is `queries`.
"""

from collections.abc import Sequence

from backends.seam import Instance
from control.access.scopes import Action
from schedulers.errors import Draining, QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.access.gate import Gate, public_name
from server.access.holder import Holder, Verdict
from server.admit import NO_TERMS, read_terms
from server.codec.form import InferBody
from server.errors import InvalidRequest, NotReady, UnknownModel
from server.inference import Inference
from server.lifecycle import STOPPING, Lifecycle
from server.lookup import Lookup, require_ready
from server.model_queries import ModelQueries
from server.routing.copies import copy_for
from server.routing.routing import Routing
from server.routing.table import Target
from server.samples.samples import Samples
from server.served import Models, Served, not_ready_text
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.trace.record import Trace
from server.trace.tracing import Tracing


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
        gate: Gate | None = None,
        tracing: Tracing | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self.models = models
        self.name = name
        self.version = version
        self.shared_memory = shared_memory
        self.gate = gate or Gate()
        self.tracing = tracing or Tracing()
        self.lifecycle = lifecycle or Lifecycle()
        self.routing = Routing(self._send_copy, self._running)
        self.samples = Samples()
        self.lookup = Lookup(models, self.routing)
        self.queries = ModelQueries(models, self.lookup, self.tracing, self.lifecycle)

    # a request's way in

    def infer(self, inference: Inference) -> Reply:
        """Take one request the whole way in, whichever protocol brought it:

        authorise → sequence or sticky key → pick arm → find version → trace → decode against its
        signature → deadline and priority → sample → submit → mirror.

        `inference` has its target and its trace by then, as far as it came, also when this raises.
        """
        return self.submit(inference, self.find_for(inference))

    def find_for(self, inference: Inference) -> Served:
        """The steps up to the version. Asked again, it keeps to the arm that it has picked.

        Raises Forbidden, InvalidRequest, UnknownModel, NotReady.
        """
        if inference.holder is not None:
            self.authorise(inference.holder, Action.INFER, inference.model)
        if self.lifecycle.stopping:
            raise NotReady(STOPPING)
        target = inference.target
        if target is None:
            lookup, name, version = self.lookup, inference.model, inference.version
            route = lookup.route(name, version)
            if route is None:
                return require_ready(lookup.model(name, version), name)
            inference.target = target = self.routing.select(route, inference)
        return self._find_target(target)

    def submit(self, inference: Inference, served: Served) -> Reply:
        """The steps behind `find_for`. Call it in the same turn of the loop: the fleet swaps
        versions between turns, so what was found cannot have begun to drain.

        Raises what decoding does, NotReady, QueueFull.
        """
        if self.tracing.on:
            inference.trace = self._begin_trace(inference, served)
        try:
            request = _request(inference, served, inference.decode(served))
            if inference.trace is not None:
                inference.trace.admitted(request)
            target = inference.target
            if target is not None and request.sequence is not None:
                self.routing.keep(target, request.sequence)
            if self.samples.on:
                return self._schedule_sampled(served, request, target)
            return self.schedule(served, request, target)
        except Exception as error:
            inference.refused(error)
            raise

    # its steps, and what else asks for one of them

    def authorise(self, holder: Holder, action: Action, name: str) -> None:
        """Raises Forbidden. `name`: of a model, as the client wrote it."""
        self.gate.authorise(holder, action, public_name(name, self.routing.aliases))

    def judge(self, authorization: bytes | str | None, action: Action, name: str) -> Verdict:
        """Authorise by a request's head, before its body is read; it counts against the rate."""
        return self.gate.judge(authorization, action, public_name(name, self.routing.aliases))

    def _find_target(self, target: Target) -> Served:
        """The version that a route has picked; that it cannot answer counts against its arm, unless
        the server as a whole is starting.

        Raises UnknownModel, NotReady.
        """
        try:
            return require_ready(self.lookup.target(target), target.model)
        except (UnknownModel, NotReady):
            if not self.lifecycle.starting:
                target.window.refused()
            raise

    def _begin_trace(self, inference: Inference, served: Served) -> Trace | None:
        version = served.version
        trace = self.tracing.begin(version.name, version.number, inference.receipt())
        if trace is not None:
            trace.arm = inference.arm
        return trace

    def schedule(self, served: Served, request: InferRequest, target: Target | None) -> Reply:
        """Hand the request to the version's scheduler; how it ends is counted for its target, and
        the target's mirrors get their copies. Raises NotReady, QueueFull.
        """
        try:
            reply = served.scheduler.submit(request)
        except (QueueFull, Draining) as error:
            if target is not None:
                target.window.refused()
            raise _refusal(served, request, error) from error
        if target is None:
            return reply
        target.window.follow(reply, request.arrived_ns)
        if target.lot is not None or target.exposure is not None:
            self.routing.met(target)
        if target.mirrors and not served.signature.decoupled:
            self.routing.mirrors.offer(target.mirrors, request)
        return reply

    def _schedule_sampled(
        self, served: Served, request: InferRequest, target: Target | None
    ) -> Reply:
        arm = target.label if target is not None else ""
        sample = self.samples.begin(request, arm, served.signature.decoupled)
        try:
            reply = self.schedule(served, request, target)
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
        if self.lifecycle.starting:
            raise InvalidRequest("the server is starting: no copies are made yet")
        served = require_ready(self.lookup.target(target), target.model)
        lowest = served.version.config.dynamic_batching.priority_levels
        return served.scheduler.submit(copy_for(served.signature, request, lowest, until_ns))

    def _running(self, model: str, version: int) -> Sequence[Instance]:
        """What executes a version now."""
        try:
            return self.models.get(model, version).instances if version else ()
        except (UnknownModel, NotReady):
            return ()


def _request(inference: Inference, served: Served, body: InferBody) -> InferRequest:
    """The request, complete. Raises InvalidRequest for a header that cannot be forwarded."""
    signature, parameters = served.signature, body.parameters
    if inference.forwarding is not None:
        parameters = {**parameters, **inference.forwarding.parameters(inference.text_headers())}
    sequence, priority, timeout_us, rest = read_terms(parameters) if parameters else NO_TERMS
    return InferRequest(
        signature.model,
        signature.version,
        body.inputs,
        body.rows,
        body.shape_key,
        inference.arrived_ns,
        body.id,
        body.wanted,
        rest,
        priority,
        timeout_us,
        inference.deadline_ns,
        sequence,
        inference.principal,
        inference.trace,
    )


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
