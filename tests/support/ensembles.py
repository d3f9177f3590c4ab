"""Makers for tests of ensembles: signatures and graphs in a line each, and who calls schedulers."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from backends.seam import Tensors
from repository.config.ensemble_graph import EnsembleGraph, EnsembleStep, parse_condition
from schedulers.batching import BatchScheduler
from schedulers.calls import Callee, GroupCallee, ModelCall
from schedulers.errors import Draining, EnsembleFailed, QueueFull
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from schedulers.request import CallContext, InferRequest
from schedulers.request_groups import GroupMember, GroupTicket
from schedulers.seam import Scheduler


class TensorTerms(NamedTuple):
    """A tensor as `schedulers.callee_signature` asks for one."""

    datatype: str
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    optional: bool = False
    labels: tuple[str, ...] = ()


class SignatureTerms(NamedTuple):
    """A model likewise."""

    model: str
    inputs: Mapping[str, TensorTerms]
    outputs: Mapping[str, TensorTerms]
    max_batch: int = 8
    version: int = 1
    decoupled: bool = False


def signature(
    model: str, inputs: Mapping[str, str], outputs: Mapping[str, str], **terms: Any
) -> SignatureTerms:
    """`inputs`, `outputs`: name → "FP32", or "FP32 3 -1" with dims; without dims they are [-1]."""
    batched = terms.get("max_batch", 8) > 0
    return SignatureTerms(
        model,
        {name: _tensor(text, batched) for name, text in inputs.items()},
        {name: _tensor(text, batched) for name, text in outputs.items()},
        **terms,
    )


def _tensor(text: str, batched: bool) -> TensorTerms:
    datatype, *shape = text.split()
    optional = shape[-1:] == ["optional"]
    dims = tuple(map(int, shape[:-1] if optional else shape)) or (-1,)
    return TensorTerms(datatype, dims, (-1, *dims) if batched else dims, optional)


Described = tuple[str, Mapping[str, str], Mapping[str, str]]
"""A step: its model, inputs and outputs."""


def graph_of(
    own: SignatureTerms,
    *steps: Described,
    conditions: Mapping[int, str] | None = None,
    maps: Mapping[int, str] | None = None,
    max_inflight: int = 0,
) -> EnsembleGraph:
    return EnsembleGraph(
        own.model,
        tuple(
            EnsembleStep(
                number,
                model,
                "",
                inputs,
                outputs,
                parse_condition((conditions or {}).get(number, "")),
                (maps or {}).get(number, ""),
            )
            for number, (model, inputs, outputs) in enumerate(steps)
        ),
        tuple(own.inputs),
        tuple(own.outputs),
        own.max_batch,
        max_inflight,
    )


class SchedulerGroup:
    """Carries groups straight to a scheduler; a tensor without a column is refused."""

    def __init__(self, model: str, scheduler: BatchScheduler) -> None:
        self.most_rows = scheduler.group_rows
        self._model = model
        self._scheduler = scheduler

    def rows_of(self, ticket: Ticket, inputs: Tensors, requested: tuple[str, ...]) -> int:
        (array,) = inputs.values()
        if not array.shape[1]:
            raise EnsembleFailed("no columns")
        return len(array)

    def submit(
        self, members: list[GroupMember], requested: tuple[str, ...]
    ) -> tuple[GroupTicket, Sequence[tuple[GroupMember, Exception]]]:
        first, rows = members[0].ticket.request, sum(member.rows for member in members)
        request = InferRequest(
            self._model,
            1,
            {},
            rows,
            None,
            time.monotonic_ns(),
            requested_outputs=requested,
            priority=first.priority,
            timeout_us=first.timeout_us,
        )
        ticket = GroupTicket(request, members)
        try:
            refused = self._scheduler.submit_group(ticket)
        except Draining as error:
            return ticket, [(member, error) for member in ticket.cut(0)]
        return ticket, [(member, QueueFull("no room")) for member in refused]


class SchedulerCaller:
    """Carries calls straight to schedulers, by the model's name; `groups`: those of several
    requests too."""

    def __init__(
        self, models: Mapping[str, tuple[SignatureTerms, Scheduler]], groups: bool = False
    ) -> None:
        self._models = models
        self._groups = groups

    def signatures(self, model: str, version: str) -> Sequence[SignatureTerms]:
        return (self._models[model][0],)

    def keep(self, context: CallContext, callees: Iterable[Callee]) -> None: ...

    def group_callee(self, context: CallContext, callee: Callee) -> GroupCallee | None:
        _, scheduler = self._models[callee[0]]
        if self._groups and isinstance(scheduler, BatchScheduler) and scheduler.group_rows:
            return SchedulerGroup(callee[0], scheduler)
        return None

    def call(self, call: ModelCall) -> Reply:
        own, scheduler = self._models[call.model]
        rows = len(next(iter(call.inputs.values())))
        return scheduler.submit(
            InferRequest(
                own.model,
                own.version,
                call.inputs,
                rows,
                None,
                time.monotonic_ns(),
                call.id,
                call.requested_outputs,
                deadline_ns=call.deadline_ns,
                context=call.context,
            )
        )
