"""Batches of which some tickets stand for several requests: `schedulers.request_groups`."""

from collections.abc import Iterable, Sequence

from backends.errors import FaultyModel
from backends.seam import Batch, BatchResult, Result
from schedulers.counters import Counters, count_failure, count_successes
from schedulers.instance_thread import InstanceThread, Run, chosen
from schedulers.policy.cores import Lease
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest
from schedulers.request_groups import GroupMember, GroupTicket


class GroupRun(Run):
    """A batch of tickets of which some stand for groups."""

    __slots__ = ()

    def __init__(
        self, tickets: Sequence[Ticket], batched: bool, started_ns: int, lease: Lease
    ) -> None:
        super().__init__(tickets, batched, started_ns, lease)
        members: list[InferRequest | GroupMember] = []
        for ticket in tickets:
            if isinstance(ticket, GroupTicket):
                members += ticket.members
            else:
                members.append(ticket.request)
        rows = [member.rows for member in members]
        self.batch = Batch(members, rows, batched)
        self.rows = sum(rows)
        self.requests = len(members)

    @staticmethod
    def fits(tickets: Iterable[Ticket]) -> bool:
        """Whether any of them stands for a group."""
        return any(isinstance(ticket, GroupTicket) for ticket in tickets)

    def answer_each(self, outcome: BatchResult, counters: Counters, now_ns: int) -> None:
        alone, results, parameters, at = list[Ticket](), list[Result](), {}, 0
        for ticket in self.tickets:
            if isinstance(ticket, GroupTicket):
                end = at + ticket.count
                self._answer_group(ticket, outcome.results[at:end], counters, now_ns)
                at = end
                continue
            if at in outcome.parameters:
                parameters[len(alone)] = outcome.parameters[at]
            alone.append(ticket)
            results.append(outcome.results[at])
            at += 1
        if alone:
            own = outcome._replace(results=results, parameters=parameters)
            self.answer_tickets(alone, own, counters, now_ns)

    def _answer_group(
        self, ticket: GroupTicket, results: Sequence[Result], counters: Counters, now_ns: int
    ) -> None:
        request = ticket.request
        if request.requested_outputs:
            results = [_chosen(request, result) for result in results]
        arrived_ns, good = request.arrived_ns, len(results)
        for result in results:
            if isinstance(result, Exception):
                good -= 1
                count_failure(counters, result, now_ns - arrived_ns)
        if good:
            count_successes(good, arrived_ns, counters, self.started_ns, now_ns)
        ticket.finish(results)


def group_rows(rules: MergeRules, threads: Iterable[InstanceThread]) -> int:
    """Rows that the requests of a group may have together; 0 where requests may not share a batch,
    or an instance takes each by itself. Also where some sizes of batches are preferred: a batch has
    all of a group or nothing, and one of a preferred size may end inside it."""
    if not rules.batched or rules.preferred or rules.hold_until:
        return 0
    return 0 if any(one.alone for one in threads) else rules.max_rows


def _chosen(request: InferRequest, result: Result) -> Result:
    if isinstance(result, Exception):
        return result
    try:
        return chosen(request, result)
    except FaultyModel as error:
        return error
