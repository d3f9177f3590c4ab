"""Statistics of loaded versions in the protocol's form: counters in, messages or JSON out.

The meaning of each figure is Triton's: `queue` and the compute durations are counted per
successful request (the latter without those the cache answered), and a batched execution credits
its full time to every request in it.
"""

from collections.abc import Iterable

from tritonclient.grpc import service_pb2 as pb

from schedulers.counters import BatchStatistics, Counters, ResponseStatistics
from server.describe import Json, to_json
from server.served_version import ServedVersion


def statistics(served: Iterable[ServedVersion]) -> pb.ModelStatisticsResponse:
    """One entry per version; durations in nanoseconds, `last_inference` in ms since the epoch."""
    return pb.ModelStatisticsResponse(model_stats=[_of_version(one) for one in served])


def statistics_json(served: Iterable[ServedVersion]) -> Json:
    """`{"model_stats": [...]}` with every field spelled out and numbers as numbers."""
    return to_json(statistics(served))


def _of_version(served: ServedVersion) -> pb.ModelStatistics:
    counters = served.counters
    return pb.ModelStatistics(
        name=served.version.name,
        version=str(served.version.number),
        last_inference=counters.last_inference_ms,
        inference_count=counters.inferences,
        execution_count=counters.executions,
        inference_stats=_requests(counters),
        batch_stats=[_batches(size, counters.batches[size]) for size in sorted(counters.batches)],
        response_stats={
            str(position): _responses(counters.responses[position])
            for position in sorted(counters.responses)
        },
    )


def _requests(counters: Counters) -> pb.InferStatistics:
    success = counters.success
    executed = success - counters.cache_hits
    return pb.InferStatistics(
        success=_spent(success, counters.success_ns),
        fail=_spent(sum(counters.failure.values()), counters.failure_ns),
        queue=_spent(success, counters.queue_ns),
        compute_input=_spent(executed, counters.input_ns),
        compute_infer=_spent(executed, counters.infer_ns),
        compute_output=_spent(executed, counters.output_ns),
        cache_hit=_spent(counters.cache_hits, counters.cache_hit_ns),
        cache_miss=_spent(counters.cache_misses, counters.cache_miss_ns),
    )


def _batches(size: int, batches: BatchStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=size,
        compute_input=_spent(batches.count, batches.input_ns),
        compute_infer=_spent(batches.count, batches.infer_ns),
        compute_output=_spent(batches.count, batches.output_ns),
    )


def _responses(responses: ResponseStatistics) -> pb.InferResponseStatistics:
    return pb.InferResponseStatistics(
        compute_infer=_spent(responses.infer, responses.infer_ns),
        compute_output=_spent(responses.output, responses.output_ns),
        success=_spent(responses.success, responses.success_ns),
        fail=_spent(responses.fail, responses.fail_ns),
        empty_response=_spent(responses.empty, responses.empty_ns),
        cancel=_spent(responses.cancel, responses.cancel_ns),
    )


def _spent(count: int, ns: int) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=count, ns=ns)
