"""Calls from inside the server that are made for several requests at once: `GroupCallee`.

What `server.model_calls` does for one call of a version that is kept, for a group: each request is
checked and recorded by itself, and the scheduler takes in one ticket.
"""

import time
from collections.abc import Sequence

from backends.seam import Tensors
from schedulers.batching import BatchScheduler
from schedulers.errors import Draining, QueueFull
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest
from schedulers.request_groups import GroupMember, GroupTicket
from server.call_checks import check_call
from server.dataplane import DataPlane, refusal
from server.inference import Inference
from server.served_version import ServedVersion
from server.signature import Signature

_FULL = QueueFull("Exceeds maximum queue size")


def served_group(dataplane: DataPlane, served: ServedVersion) -> "ServedGroup | None":
    """None where the version has to be called for each request by itself."""
    scheduler, config = served.scheduler, served.version.config
    if dataplane.samples.on or dataplane.drift.on or config.HasField("sequence_batching"):
        return None
    if not isinstance(scheduler, BatchScheduler) or not scheduler.group_rows:
        return None
    return ServedGroup(dataplane, served, scheduler) if _is_fixed(served.signature) else None


def _is_fixed(signature: Signature) -> bool:
    """Whether all rows that it takes are of one shape, so that any of them share a batch."""
    return not signature.decoupled and all(
        spec.fixed is not None and spec.itemsize and not spec.optional and not spec.ragged
        for spec in signature.inputs.values()
    )


class ServedGroup:
    """One loaded version whose rows are all of one shape."""

    def __init__(
        self, dataplane: DataPlane, served: ServedVersion, scheduler: BatchScheduler
    ) -> None:
        self.most_rows = scheduler.group_rows
        self._dataplane = dataplane
        self._served = served
        self._scheduler = scheduler

    def rows_of(self, ticket: Ticket, inputs: Tensors, requested: tuple[str, ...]) -> int:
        request = ticket.request
        try:
            rows, _ = check_call(self._served.signature, inputs, requested, 0, request.id)
        except Exception as error:
            self._refused(ticket, error)
            raise
        return rows

    def submit(
        self, members: list[GroupMember], requested: tuple[str, ...]
    ) -> tuple[GroupTicket, Sequence[tuple[GroupMember, Exception]]]:
        signature = self._served.signature
        first = members[0].ticket.request
        request = InferRequest(
            signature.model,
            signature.version,
            members[0].inputs,
            sum(member.rows for member in members),
            None,
            time.monotonic_ns(),
            "",
            requested,
            priority=first.priority,
            timeout_us=first.timeout_us,
            deadline_ns=_latest_deadline(members),
        )
        ticket = GroupTicket(request, members)
        ticket.recorder = self._dataplane.history.group_ended
        try:
            refused = self._scheduler.submit_group(ticket)
        except Draining as error:
            refusals = [(member, refusal(self._served, request, error)) for member in members]
            ticket.cut(0)
        else:
            refusals = [
                (member, refusal(self._served, member.ticket.request, _FULL)) for member in refused
            ]
        for member, reason in refusals:
            self._refused(member.ticket, reason)
        return ticket, refusals

    def _refused(self, ticket: Ticket, error: Exception) -> None:
        request, signature = ticket.request, self._served.signature
        called = Inference(
            signature.model, "", None, time.monotonic_ns(), request.deadline_ns, request.number
        )
        called.part, called.client_id = request.part, request.client_id
        self._dataplane.history.refused(called, signature.version, error)


def _latest_deadline(members: Sequence[GroupMember]) -> int:
    """Until when anybody waits; 0 where somebody waits for ever."""
    deadlines = [member.ticket.request.deadline_ns for member in members]
    return max(deadlines) if all(deadlines) else 0
