"""Calls from inside the server to a model: they go the whole way of a client's request.

Implements `schedulers.calls.ModelCaller`. Ensembles and python models call here; routing,
permission, tracing, statistics and history are those of `server.dataplane`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from control.access.scopes import Action
from schedulers.calls import Callee, GroupCallee, ModelCall
from schedulers.reply import Reply
from schedulers.request import CallContext, InferRequest
from schedulers.request import Sequence as SequenceKey
from server.access.token_holder import PrincipalPermission
from server.call_checks import check_call
from server.codec.output_format import InferBody
from server.dataplane import DataPlane, require_ready
from server.errors import ServingError
from server.group_calls import served_group
from server.history.history import LONGEST_ID
from server.inference import Inference
from server.request_ids import next_number
from server.routing.routing import text_of
from server.routing.table import CompiledRoute
from server.served_version import ServedVersion
from server.signature import Signature


class DataPlaneCaller:
    """A `ModelCaller` over one data plane; on the loop's thread."""

    def __init__(self, dataplane: Callable[[], DataPlane]) -> None:
        """`dataplane`: the one there will be; it is built of models that hold this."""
        self._dataplane = dataplane

    def signatures(self, model: str, version: str) -> Sequence[Signature]:
        dataplane = self._dataplane()
        route = dataplane.find_route(model, version)
        if route is None:
            return (require_ready(dataplane.find_model(model, version), model).signature,)
        return tuple(
            require_ready(dataplane.find_target(target), target.model).signature
            for target in route.loose
        )

    def keep(self, context: CallContext, callees: Iterable[Callee]) -> None:
        dataplane, versions = self._dataplane(), context.root.versions
        for callee in callees:
            if callee in versions or dataplane.find_route(*callee) is not None:
                continue
            with suppress(ServingError):  # whoever calls it is told
                _keep(context, callee, dataplane.find_model(*callee))

    def group_callee(self, context: CallContext, callee: Callee) -> GroupCallee | None:
        kept = context.root.versions.get(callee)
        if not isinstance(kept, ServedVersion):
            return None
        return served_group(self._dataplane(), kept)

    def call(self, call: ModelCall) -> Reply:
        dataplane = self._dataplane()
        if call.trace is None and call.sequence is None:
            root = call.context.root
            if call.version or call.model not in root.arms:
                if call.keeps_version:
                    kept = root.versions.get((call.model, call.version))
                    if isinstance(kept, ServedVersion):
                        return _submit_to(dataplane, kept, call)
                elif not call.parameters and dataplane.find_route(call.model, call.version) is None:
                    return _submit_to(dataplane, _serving(dataplane, call), call)
        inference = CallInference(call)
        served = self._find(dataplane, inference, call)
        if call.trace is None:
            return dataplane.submit(inference, served)
        version = served.version
        inference.trace = trace = dataplane.tracing.begin_child(
            call.trace, version.name, version.number
        )
        trace.arm = inference.arm
        reply = dataplane.submit(inference, served)
        reply.watch(inference.traced)
        return reply

    @staticmethod
    def _find(dataplane: DataPlane, inference: "CallInference", call: ModelCall) -> ServedVersion:
        root, callee = call.context.root, (call.model, call.version)
        if not call.version:
            inference.target = root.arms.get(call.model)
        kept = root.versions.get(callee) if call.keeps_version else None
        if isinstance(kept, ServedVersion):
            return kept
        served = dataplane.find_for(inference)
        if inference.target is not None:
            root.arms[call.model] = inference.target
        if call.keeps_version:
            _keep(call.context, callee, served)
        return served


def _keep(context: CallContext, callee: Callee, served: ServedVersion) -> None:
    served.keep()
    context.root.versions[callee] = served


def _serving(dataplane: DataPlane, call: ModelCall) -> ServedVersion:
    """What `DataPlane.find_for` does with a call that no route leads to."""
    try:
        if call.principal is not None and not call.covered:
            dataplane.authorise(PrincipalPermission(call.principal), Action.INFER, call.model)
        return require_ready(dataplane.find_model(call.model, call.version), call.model)
    except Exception as error:
        dataplane.history.refused(CallInference(call), 0, error)
        raise


def _submit_to(dataplane: DataPlane, served: ServedVersion, call: ModelCall) -> Reply:
    """What `DataPlane.submit` does with a call whose version is settled, and which no route led to,
    without an `Inference`: a third of what a step of an ensemble costs the loop (`python -m
    benchmarks --only ensembles,scripts`). Only a call that is refused needs one."""
    signature = served.signature
    try:
        rows, key = check_call(
            signature, call.inputs, call.requested_outputs, len(call.parameters), call.id
        )
        request = InferRequest(
            signature.model,
            signature.version,
            call.inputs,
            rows,
            key,
            time.monotonic_ns(),
            call.id,
            call.requested_outputs,
            call.parameters,
            call.priority,
            call.timeout_us,
            call.deadline_ns,
            None,
            call.principal,
            None,
            call.number or next_number(),
            call.part,
            "",
            (call.client_id or call.id)[:LONGEST_ID],
            call.context,
        )
        return dataplane.schedule_inside(served, request)
    except Exception as error:
        dataplane.history.refused(CallInference(call), served.version.number, error)
        raise


class CallInference(Inference):
    """A call as the data plane sees it. Its arrays are there already, and only checked.

    What a route asks of headers it finds in the parameters of these names, which is where headers
    that are forwarded to models are.
    """

    __slots__ = ("call", "context")

    def __init__(self, call: ModelCall) -> None:
        arrived_ns = time.monotonic_ns()
        super().__init__(call.model, call.version, None, arrived_ns, call.deadline_ns, call.number)
        self.call = call
        self.context = call.context
        self.part, self.client_id = call.part, call.client_id
        self.principal = call.principal
        if call.principal is not None and not call.covered:
            self.holder = PrincipalPermission(call.principal)

    def decode(self, served: ServedVersion) -> InferBody:
        call = self.call
        rows, key = check_call(
            served.signature, call.inputs, call.requested_outputs, len(call.parameters), call.id
        )
        return InferBody(
            call.id, call.inputs, rows, key, call.requested_outputs, self._parameters()
        )

    def _parameters(self) -> Mapping[str, Any]:
        """With Triton's own among them, as a client would have sent them."""
        call = self.call
        if call.sequence is None and not call.priority and not call.timeout_us:
            return call.parameters
        made = {**call.parameters, "priority": call.priority, "timeout": call.timeout_us}
        if call.sequence is not None:
            key, start, end = call.sequence
            made |= {"sequence_id": key, "sequence_start": start, "sequence_end": end}
        return made

    def traced(self, reply: Reply) -> None:
        """The reply has ended: so does its trace."""
        trace, response = self.trace, reply.unread
        if trace is not None:
            if reply.error is not None:
                trace.failed(reply.error)
            elif response is not None:
                trace.answered(response)
            trace.end()

    # what a route asks

    def unit_in_header(self, route: CompiledRoute) -> str:
        return self._header(route.unit_name)

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        names = (name.decode("latin-1") for name in route.headers)
        return {name: value for name in names if (value := self._header(name))}

    def _header(self, name: str) -> str:
        for given, value in self.call.parameters.items():
            if given.lower() == name:
                return text_of(value)
        return ""

    def parameter(self, name: str) -> object:
        if name == "sequence_id" and self.call.sequence is not None:
            return self.call.sequence.key
        return self.call.parameters.get(name)

    def sequence(self) -> SequenceKey | None:
        return self.call.sequence
