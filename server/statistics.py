"""Statistics of loaded versions in the protocol's form: counters in, messages or JSON out.

The meaning of each figure is Triton's: `queue` and the compute durations are counted per
successful request (the latter without those the cache answered), and a batched execution credits
its full time to every request in it.
"""

from collections.abc import Iterable
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from schedulers.counters import BatchStatistics, Counters, ResponseStatistics
from server.describe import Json
from server.served_version import ServedVersion

MOST_KEPT = 10_000
"""Messages of versions, those that were unloaded since all were asked for among them."""


def statistics_json(served: Iterable[ServedVersion]) -> Json:
    """`{"model_stats": [...]}` with every field spelled out and numbers as numbers; durations in
    nanoseconds, `last_inference` in ms since the epoch.

    Written out, because protobuf's reflection took 40 ms of the loop for 500 versions.
    """
    return {"model_stats": [_of_version(one) for one in served]}


class StatisticsMessages:
    """The same as messages. Those of versions whose counters have not changed are kept."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Json, pb.ModelStatistics]] = {}

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._known)

    def of(
        self, served: Iterable[ServedVersion], are_all: bool = False
    ) -> pb.ModelStatisticsResponse:
        """One entry per version, in this order. `are_all`: no other version is loaded, so that
        messages of others are let go of."""
        known: dict[int, tuple[Json, pb.ModelStatistics]] = {}
        for one in served:
            fields = _of_version(one)
            before = self._known.get(id(one))
            if before is None or before[0] != fields:
                before = fields, pb.ModelStatistics(**_for_message(fields))
            known[id(one)] = before
        if are_all or len(self._known) > MOST_KEPT:
            self._known = known
        else:
            self._known.update(known)
        return pb.ModelStatisticsResponse(model_stats=[message for _, message in known.values()])


def _for_message(fields: Json) -> dict[str, Any]:
    """What the message's constructor takes: the values of a map of messages are messages."""
    responses = {
        position: pb.InferResponseStatistics(**value)
        for position, value in fields["response_stats"].items()
    }
    return {**fields, "response_stats": responses}


def _of_version(served: ServedVersion) -> Json:
    counters = served.counters
    batches, responses = counters.batches, counters.responses
    return {
        "name": served.version.name,
        "version": str(served.version.number),
        "last_inference": counters.last_inference_ms,
        "inference_count": counters.inferences,
        "execution_count": counters.executions,
        "inference_stats": _requests(counters),
        "batch_stats": [_batches(size, batches[size]) for size in sorted(batches)],
        "memory_usage": [],
        "response_stats": {
            str(position): _responses(responses[position]) for position in sorted(responses)
        },
    }


def _requests(counters: Counters) -> Json:
    success = counters.success
    executed = success - counters.cache_hits
    return {
        "success": _spent(success, counters.success_ns),
        "fail": _spent(sum(counters.failure.values()), counters.failure_ns),
        "queue": _spent(success, counters.queue_ns),
        "compute_input": _spent(executed, counters.input_ns),
        "compute_infer": _spent(executed, counters.infer_ns),
        "compute_output": _spent(executed, counters.output_ns),
        "cache_hit": _spent(counters.cache_hits, counters.cache_hit_ns),
        "cache_miss": _spent(counters.cache_misses, counters.cache_miss_ns),
    }


def _batches(size: int, batches: BatchStatistics) -> Json:
    return {
        "batch_size": size,
        "compute_input": _spent(batches.count, batches.input_ns),
        "compute_infer": _spent(batches.count, batches.infer_ns),
        "compute_output": _spent(batches.count, batches.output_ns),
    }


def _responses(responses: ResponseStatistics) -> Json:
    return {
        "compute_infer": _spent(responses.infer, responses.infer_ns),
        "compute_output": _spent(responses.output, responses.output_ns),
        "success": _spent(responses.success, responses.success_ns),
        "fail": _spent(responses.fail, responses.fail_ns),
        "empty_response": _spent(responses.empty, responses.empty_ns),
        "cancel": _spent(responses.cancel, responses.cancel_ns),
    }


def _spent(count: int, ns: int) -> Json:
    return {"count": count, "ns": ns}
