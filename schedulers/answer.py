"""Turn one execution's outcome into replies and counts.

`schedulers.batching` comes here when a lane has finished; from here the replies wake the doors.
"""

import time

from backends.errors import BackendError, FaultyModel
from backends.seam import Outcome, Tensors
from schedulers.counters import BatchStatistics, Counters
from schedulers.errors import Cancelled, QueueFull, SchedulingError
from schedulers.lane import Run
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest, InferResponse


def answer(run: Run, counters: Counters, now_ns: int) -> None:
    """Answer every ticket of a finished run; nobody is left waiting, nobody gets another's rows."""
    outcome, requests = run.outcome, len(run.tickets)
    if not isinstance(outcome, Outcome) or len(outcome.results) != requests:
        error = _error_of(outcome, requests)
        for ticket in run.tickets:
            _fail(ticket, error, counters, now_ns)
        return
    count_execution(run, outcome, counters)
    counters.input_ns += requests * outcome.input_ns
    counters.infer_ns += requests * outcome.infer_ns
    counters.output_ns += requests * outcome.output_ns
    parameters = outcome.parameters
    for index, (ticket, result) in enumerate(zip(run.tickets, outcome.results, strict=True)):
        if ticket.request.trace is not None:
            ticket.request.trace.executed(
                run.started_ns, outcome.input_ns, outcome.infer_ns, outcome.output_ns
            )
        if isinstance(result, Exception):
            _fail(ticket, result, counters, now_ns)
            continue
        response = _succeed(ticket, result, counters, run.started_ns, now_ns)
        if response is None:
            continue
        if parameters and index in parameters:
            response.parameters = parameters[index]
        ticket.send(response)


def _error_of(outcome: Outcome | Exception | None, requests: int) -> Exception:
    """What to tell the requests of a run that has no result for each."""
    if isinstance(outcome, Outcome):
        return FaultyModel(
            f"{len(outcome.results)} results for {requests} requests. This is a bug."
        )
    return outcome or FaultyModel("no outcome. This is a bug.")


def count_execution(run: Run, outcome: Outcome, counters: Counters) -> None:
    """Count one batch and where its time went, whatever became of its requests."""
    counters.inferences += run.rows
    counters.executions += 1
    counters.last_inference_ms = time.time_ns() // 1_000_000
    batch = counters.batches.get(run.rows)
    if batch is None:
        batch = counters.batches[run.rows] = BatchStatistics()
    batch.count += 1
    batch.input_ns += outcome.input_ns
    batch.infer_ns += outcome.infer_ns
    batch.output_ns += outcome.output_ns


def _succeed(
    ticket: Ticket, outputs: Tensors, counters: Counters, started_ns: int, now_ns: int
) -> InferResponse | None:
    """The response to send; None when the ticket has failed after all."""
    request = ticket.request
    if request.wanted:
        try:
            outputs = _chosen(request, outputs)
        except FaultyModel as error:
            _fail(ticket, error, counters, now_ns)
            return None
    count_success(ticket, counters, started_ns, now_ns)
    return InferResponse(request.id, request.model, request.version, outputs)


def count_success(ticket: Ticket, counters: Counters, started_ns: int, now_ns: int) -> None:
    """Count one request that was answered."""
    arrived_ns = ticket.request.arrived_ns
    queue_ns = started_ns - arrived_ns
    total_ns = now_ns - arrived_ns
    counters.success += 1
    counters.success_ns += total_ns
    counters.queue_ns += queue_ns
    counters.request_histogram.add(total_ns)
    counters.queue_histogram.add(queue_ns)


def _chosen(request: InferRequest, outputs: Tensors) -> Tensors:
    """The outputs the request asked for, in its order. Raises `FaultyModel` when one is missing."""
    there = {name: outputs[name] for name in request.wanted if name in outputs}
    if len(there) != len(request.wanted):
        missing = [name for name in request.wanted if name not in outputs]
        raise FaultyModel(
            f"model '{request.model}' version {request.version} did not produce the requested "
            f"output(s) {', '.join(missing)}"
        )
    return there


def _fail(ticket: Ticket, error: Exception, counters: Counters, now_ns: int) -> None:
    count_failure(counters, error, now_ns - ticket.request.arrived_ns)
    ticket.fail(error)


def count_failure(counters: Counters, error: Exception, duration_ns: int) -> None:
    """Count one failed request under Triton's reasons."""
    counters.failure[_reason(error)] += 1
    counters.failure_ns += duration_ns


def _reason(error: Exception) -> str:
    if isinstance(error, Cancelled):
        return "CANCELED"
    if isinstance(error, QueueFull):
        return "REJECTED"
    if isinstance(error, BackendError):
        return "BACKEND"
    return "REJECTED" if isinstance(error, SchedulingError) else "OTHER"
