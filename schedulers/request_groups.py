"""Requests that are queued, executed and counted together: one ticket stands for all of them.

An ensemble whose requests arrive together calls a step's model for all of them at once
(`schedulers.ensembles.request_group`), and `schedulers.batching` takes the calls in as one ticket,
which `schedulers.group_run` answers.
To an instance each request is a member of the batch as ever; only what the event loop does for a
request is done once for a group.
"""

from collections.abc import Sequence

from backends.seam import Parameters, Result, Tensors
from schedulers.errors import QueueFull
from schedulers.policy.queue import BatchQueue, Ticket
from schedulers.request import InferRequest


class GroupMember:
    """One request's call of the group's model, as `backends.seam.Member`. `ticket`: of the request
    that causes it; `place`: which that is among those that the group's owner has."""

    __slots__ = ("inputs", "place", "requested_outputs", "rows", "ticket")

    def __init__(
        self,
        ticket: Ticket,
        place: int,
        inputs: Tensors,
        rows: int,
        requested_outputs: tuple[str, ...],
    ) -> None:
        self.ticket = ticket
        self.place = place
        self.inputs = inputs
        self.rows = rows
        self.requested_outputs = requested_outputs

    @property
    def id(self) -> str:
        return self.ticket.request.id

    @property
    def parameters(self) -> Parameters:
        return self.ticket.request.parameters

    @property
    def correlation_id(self) -> int | str:
        return 0

    @property
    def timeout_us(self) -> int:
        return self.ticket.request.timeout_us


class GroupTicket(Ticket):
    """`request`: what is common to all, its rows those of all `members`. When it has ended without
    an error, `results` has one for each of `members`, in their order. `dropped`: members that were
    cancelled before they were executed."""

    __slots__ = ("dropped", "members", "results")

    def __init__(self, request: InferRequest, members: list[GroupMember]) -> None:
        super().__init__(request)
        self.members = members
        self.results: Sequence[Result] = ()
        self.dropped: list[GroupMember] = []

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.members)

    def cut(self, count: int) -> list[GroupMember]:
        """Keep the first `count` members; the others."""
        rest = self.members[count:]
        del self.members[count:]
        self.request.rows = sum(member.rows for member in self.members)
        return rest

    def drop_cancelled(self) -> int:
        if not any(member.ticket.ended for member in self.members):
            return 0
        gone = [member for member in self.members if member.ticket.ended]
        self.members = [member for member in self.members if not member.ticket.ended]
        self.dropped += gone
        self.request.rows = sum(member.rows for member in self.members)
        return len(gone)

    def push_to(self, queue: BatchQueue) -> tuple[list[GroupMember], int]:
        """Let as many members wait there as may, from the first; the others, and how many cancelled
        requests left the queue for them."""
        arrived_ns = self.request.arrived_ns
        try:
            queue.push(self, arrived_ns)
        except QueueFull:
            forgotten = queue.forget_cancelled()
            refused = self.cut(queue.room(self.request.priority))
            if self.members:
                queue.push(self, arrived_ns)
            return refused, forgotten
        return [], 0

    def finish(self, results: Sequence[Result]) -> None:
        """End with a result for each member."""
        if not self.ended:
            self.results = results
            self.ended = True
            self._wake()
